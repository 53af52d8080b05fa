// Over the wire: while some models apply commits as slowly as they like, the others are served as ever.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

std::atomic<bool> released{false};
std::atomic<int> applying{0};

// Does not end before the test lets it.
class SlowHalf : public ServerHalf {
 public:
  void Finish(const RoundInfo& round, const FinishPiece& piece) const override {
    ++applying;
    while (!released) std::this_thread::yield();
    ServerHalf::Finish(round, piece);
  }
};

class NoWorkerHalf : public WorkerHalf {
 public:
  void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
};

REGISTER_ALGORITHM({.name = "slow_on_purpose",
                    .description = "applies no commit until the test lets it",
                    .make_server = [](const Hyperparameters&) { return std::make_unique<SlowHalf>(); },
                    .make_worker = [](const Hyperparameters&) { return std::make_unique<NoWorkerHalf>(); }});

TEST_CASE("models whose commits are applied slowly hold up nobody else, with one thread") {
  const auto server = StartServer({.threads = 1});
  v1::ParameterServer::Stub stub(OpenChannel(server->address()));
  constexpr int kSlow = 3;
  std::vector<std::unique_ptr<StubSession>> sessions;
  std::vector<v1::Participant> slow;
  for (int i = 0; i < kSlow; ++i) {
    const std::string name = absl::StrCat("slow-", i);
    CreateModel(server->address(), Spec(name, "slow_on_purpose", 1), {0});
    slow.push_back(JoinByStub(&stub, name, "w"));
    sessions.push_back(std::make_unique<StubSession>(&stub));
  }
  CreateModel(server->address(), Spec("other", "downpour", 1), {0});
  const auto other = Join(server->address(), "other", "w");
  const auto admin = Connect(server->address());

  for (int i = 0; i < kSlow; ++i) {
    REQUIRE(sessions[i]->Send(CommitHeader(slow[i], 1, 1), 0, std::vector<float>(1, 1)));
    CHECK(Await([&] { return applying == i + 1; }));
  }
  for (int i = 0; i < 10; ++i) {
    float center = 0;
    const auto exchanged = other->Exchange(std::vector<float>(1, 1), absl::MakeSpan(&center, 1), absl::Seconds(20));
    INFO(exchanged.status());
    CHECK(exchanged.ok());
  }
  for (int i = 0; i < kSlow; ++i) {
    const auto info = admin->GetModel(absl::StrCat("slow-", i));
    REQUIRE(info.ok());
    CHECK(info->version() == 0);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::HeartbeatRequest beat;
    *beat.mutable_participant() = slow[i];
    v1::HeartbeatReply reply;
    CHECK(stub.Heartbeat(&context, beat, &reply).ok());
  }
  CHECK(admin->DeleteModel("slow-2").ok());
  released = true;
  for (int i = 0; i < 2; ++i) {
    const auto answer = sessions[i]->Receive();
    REQUIRE(answer.has_value());
    CHECK(answer->header.version() == 1);
  }
}

}  // namespace
}  // namespace paramd
