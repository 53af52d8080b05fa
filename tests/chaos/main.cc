// Long runs: bazel run //tests/chaos -- --kills=200
#include <iostream>
#include <random>

#include "absl/flags/flag.h"
#include "flags/command_line.h"
#include "tests/chaos/run.h"

ABSL_FLAG(int, kills, 200, "of daemon and workers");
ABSL_FLAG(bool, tls, false, "whether all goes over TLS");
ABSL_FLAG(bool, credentials, false, "whether clients have certificates and tokens, too, which are replaced meanwhile");
ABSL_FLAG(bool, small_disk, false, "whether the daemon's disk is full now and then");
ABSL_FLAG(std::string, durability, "journal", "the daemon's; empty: only workers are killed");
ABSL_FLAG(std::string, checkpoint_every, "200ms", "the daemon's");
ABSL_FLAG(bool, only_daemon, false, "only the daemon is killed, each time while it writes a checkpoint");
ABSL_FLAG(uint64_t, seed, 0, "of everything that is drawn; 0: a fresh one");

int main(int argc, char** argv) {
  if (const auto status = paramd::ParseFlags(argc, argv); !status.ok()) {
    std::cerr << status.message() << "\n\n" << paramd::FlagsHelp("tests/chaos/main.cc");
    return 2;
  }
  const uint64_t given = absl::GetFlag(FLAGS_seed);
  const uint64_t seed = given != 0 ? given : std::random_device()();
  std::cout << "seed " << seed << std::endl;
  const auto report = paramd::chaos::Run({.seed = seed,
                                          .kills = absl::GetFlag(FLAGS_kills),
                                          .tls = absl::GetFlag(FLAGS_tls) || absl::GetFlag(FLAGS_credentials),
                                          .credentials = absl::GetFlag(FLAGS_credentials),
                                          .small_disk = absl::GetFlag(FLAGS_small_disk),
                                          .durability = absl::GetFlag(FLAGS_durability),
                                          .only_daemon = absl::GetFlag(FLAGS_only_daemon),
                                          .checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every)});
  std::cout << report.figures;
  if (!report.skipped.empty()) {
    std::cerr << report.skipped << std::endl;
    return 77;
  }
  for (const std::string& wrong : report.wrong) std::cout << "WRONG: " << wrong << std::endl;
  std::cout << (report.wrong.empty() ? "all as it must be" : "not all is as it must be") << std::endl;
  return report.wrong.empty() ? 0 : 1;
}
