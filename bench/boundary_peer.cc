// The C++ side of scripts/java_bench.sh: exchanges as often as it is told, and says how long that took.
//
//   boundary_peer KIND SERVER FLOATS     KIND: grpc, shm or shm-inplace
//
// Each line of standard input is a number of exchanges; the answer is a line with their seconds.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "bench/paramd_peer.h"
#include "process/tuning.h"

namespace paramd::bench {
namespace {

int Fail(const absl::Status& status) {
  std::cerr << "boundary_peer: " << status.message() << "\n";
  return 1;
}

int Main(int argc, char** argv) {
  if (argc != 4) return Fail(absl::InvalidArgumentError("usage: boundary_peer KIND SERVER FLOATS"));
  TuneProcess();
  const size_t floats = std::strtoul(argv[3], nullptr, 10);
  std::vector<float> update(floats);
  std::vector<float> center(floats);
  auto peer = ConnectParamdPeer(argv[1], argv[2], "downpour", "cpp", {update, absl::MakeSpan(center)});
  if (!peer.ok()) return Fail(peer.status());
  int64_t exchanges = 0;
  while (std::cin >> exchanges) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < exchanges; ++i) {
      if (auto status = (*peer)->Run(Operation::kExchange); !status.ok()) return Fail(status);
    }
    std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace paramd::bench

int main(int argc, char** argv) { return paramd::bench::Main(argc, argv); }
