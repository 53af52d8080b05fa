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

int CommitForever(const std::string& server, const std::string& model, const std::string& name) {
  auto worker = Worker::Join({.server = server, .model = model, .worker = name, .transport = TestWorkerTransport()});
  if (!worker.ok()) {
    std::cerr << worker.status() << std::endl;
    return 1;
  }
  std::cout << "joined " << (*worker)->incarnation() << std::endl;
  const std::vector<float> ones((*worker)->model().parameters(), 1);
  while (true) {
    const auto committed = (*worker)->Commit(ones, absl::InfiniteDuration());
    if (!committed.ok()) {
      std::cerr << committed.status() << std::endl;
      return 1;
    }
  }
}

int CommitHalf(const std::string& server, const std::string& model, const std::string& name) {
  v1::ParameterServer::Stub stub(OpenChannel(server));
  const v1::Participant participant = JoinByStub(&stub, model, name);
  if (participant.incarnation() == 0) return 1;
  std::cout << "joined " << participant.incarnation() << std::endl;
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_model(model);
  v1::ModelInfo info;
  if (!stub.GetModel(&context, request, &info).ok()) return 1;
  const std::vector<float> ones(info.parameters(), 1);
  StubSession session(&stub);
  bool sent = session.Send(CommitHeader(participant, 1, ones.size()));
  for (size_t at = 0; at + kChunkFloats <= ones.size() / 2; at += kChunkFloats) {
    sent = sent && session.Send(at, absl::MakeConstSpan(ones).subspan(at, kChunkFloats));
  }
  if (!sent) return 1;
  std::cout << "half" << std::endl;
  while (true) {
    absl::SleepFor(absl::Milliseconds(200));
    grpc::ClientContext beat;
    v1::HeartbeatRequest alive;
    *alive.mutable_participant() = participant;
    v1::HeartbeatReply reply;
    if (!stub.Heartbeat(&beat, alive, &reply).ok()) return 1;
  }
}

}  // namespace
}  // namespace paramd

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return (*argv[4] == 'h' ? paramd::CommitHalf : paramd::CommitForever)(argv[1], argv[2], argv[3]);
}
