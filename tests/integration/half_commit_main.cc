// A worker process that is to be killed.
//
//   half_commit SERVER MODEL WORKER half    joins, sends half of a commit of ones, and no more
//   half_commit SERVER MODEL WORKER whole   joins and commits ones, again and again
//
// It prints "joined INCARNATION", and then "half" once that half is on its way.
#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/worker.h"
#include "proto/tensor_codec.h"
#include "tests/integration/stub_session.h"
#include "tests/support/transport.h"

namespace paramd {
namespace {

int Run(const std::string& server, const std::string& model, const std::string& name, bool half) {
  auto worker = Worker::Join({.server = server, .model = model, .worker = name, .transport = TestWorkerTransport()});
  if (!worker.ok()) {
    std::cerr << worker.status() << std::endl;
    return 1;
  }
  std::cout << "joined " << (*worker)->incarnation() << std::endl;
  const std::vector<float> ones((*worker)->model().parameters(), 1);
  while (!half) {
    const auto committed = (*worker)->Commit(ones, absl::InfiniteDuration());
    if (!committed.ok()) {
      std::cerr << committed.status() << std::endl;
      return 1;
    }
  }
  v1::ParameterServer::Stub stub(OpenChannel(server));
  StubSession session(&stub);
  bool sent = session.Send(CommitHeader(model, name, (*worker)->incarnation(), 1, ones.size()));
  for (size_t at = 0; at + kChunkFloats <= ones.size() / 2; at += kChunkFloats) {
    sent = sent && session.Send(at, absl::MakeConstSpan(ones).subspan(at, kChunkFloats));
  }
  if (!sent) return 1;
  std::cout << "half" << std::endl;
  absl::SleepFor(absl::InfiniteDuration());
  return 0;
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) { return argc == 5 ? paramd::Run(argv[1], argv[2], argv[3], *argv[4] == 'h') : 2; }
