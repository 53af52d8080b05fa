// What a worker sends, and what it knows of its commits, whatever becomes of its calls.
#include "client/commit_sequence.h"

#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <vector>

namespace paramd {
namespace {

constexpr uint64_t kFloats = 3;
const absl::Time kDeadline = absl::FromUnixSeconds(60);

// Answers as a test says, and keeps what it was given.
class FakeSender : public ExchangeSender {
 public:
  ExchangeOutcome Send(v1::ExchangeHeader header, absl::Span<const float> commit, absl::Span<float> center,
                       absl::Time deadline) override {
    CHECK(deadline == kDeadline);
    if (header.has_commit()) CHECK(header.commit().floats() == commit.size());
    sent.push_back(std::move(header));
    if (answers.empty()) return {.status = absl::InternalError("not expected")};
    ExchangeOutcome answer = std::move(answers.front());
    answers.pop_front();
    if (answer.status.ok()) std::fill(center.begin(), center.end(), 7.0f);
    return answer;
  }

  std::deque<ExchangeOutcome> answers;
  std::vector<v1::ExchangeHeader> sent;
};

ExchangeOutcome Applied(int64_t version) {
  ExchangeOutcome outcome{.commit = CommitState::kApplied};
  outcome.reply.set_version(version);
  return outcome;
}

ExchangeOutcome Lost() {
  return {.status = absl::DeadlineExceededError("no answer"), .commit = CommitState::kUnknown, .pending = true};
}

class Fixture {
 public:
  Fixture() {
    participant.set_model("m");
    participant.set_worker("a");
    participant.set_incarnation(4);
    participant.set_nonce(5);
    participant.set_model_id(6);
    participant.set_daemon_id(7);
  }

  v1::Participant participant;
  FakeSender sender;
  CommitSequence commits{[this] { return participant; }(), kFloats, v1::FLOAT16, &sender};
  const std::vector<float> update = std::vector<float>(kFloats, 1);
  std::vector<float> center = std::vector<float>(kFloats);
};

TEST_CASE_METHOD(Fixture,
                 "a commit that is told to pull after an attempt whose answer was lost asks what became of it") {
  const CommitState state = GENERATE(CommitState::kApplied, CommitState::kNotApplied);
  sender.answers = {{.status = absl::FailedPreconditionError("came back from disk"),
                     .commit = CommitState::kUnknown,
                     .pending = true,
                     .pull_again = true},
                    {.commit = state},
                    {.reply = Applied(9).reply}};
  const auto exchanged = commits.Exchange(update, absl::MakeSpan(center), kDeadline);
  REQUIRE(exchanged.ok());
  CHECK(exchanged->applied == (state == CommitState::kApplied));
  CHECK(exchanged->version == 9);
  CHECK(commits.last_commit() == state);
  REQUIRE(sender.sent.size() == 3);
  CHECK(sender.sent[1].await().sequence() == 1);
  CHECK(sender.sent[2].has_pull());
}

TEST_CASE("every message says who speaks, and a commit its number, base and encoding") {
  FakeSender sender;
  v1::Participant participant;
  participant.set_model("m");
  participant.set_nonce(5);
  participant.set_daemon_id(7);
  CommitSequence commits(participant, kFloats, v1::FLOAT16, &sender);
  CHECK(commits.last_commit() == CommitState::kNone);
  std::vector<float> center(kFloats);
  const std::vector<float> update(kFloats, 1);
  sender.answers = {{.reply = Applied(9).reply}, Applied(10), Applied(11), {}};
  REQUIRE(commits.Exchange(std::nullopt, absl::MakeSpan(center), kDeadline).ok());
  REQUIRE(commits.Exchange(update, absl::MakeSpan(center), kDeadline).ok());
  REQUIRE(commits.Exchange(update, std::nullopt, kDeadline).ok());
  REQUIRE(commits.Initialize(update, kDeadline).ok());
  REQUIRE(sender.sent.size() == 4);
  for (const v1::ExchangeHeader& header : sender.sent) {
    CHECK(header.participant().SerializeAsString() == participant.SerializeAsString());
  }
  CHECK(sender.sent[0].has_pull());
  CHECK(sender.sent[0].encoding() == v1::FLOAT16);
  CHECK(sender.sent[1].commit().sequence() == 1);
  CHECK(sender.sent[1].commit().base_version() == 9);
  CHECK(sender.sent[1].commit().pull());
  CHECK(sender.sent[1].encoding() == v1::FLOAT16);
  CHECK(sender.sent[2].commit().sequence() == 2);
  // What a commit alone returns was not pulled.
  CHECK(sender.sent[2].commit().base_version() == 10);
  CHECK_FALSE(sender.sent[2].commit().pull());
  CHECK(sender.sent[3].initialize().floats() == kFloats);
  CHECK(sender.sent[3].encoding() == v1::FLOAT32);
  CHECK(commits.last_commit() == CommitState::kApplied);
}

TEST_CASE_METHOD(Fixture, "the next call finishes a pending commit before anything else") {
  sender.answers = {Lost(), Applied(1), Applied(2)};
  CHECK_FALSE(commits.Exchange(update, absl::MakeSpan(center), kDeadline).ok());
  CHECK(commits.last_commit() == CommitState::kUnknown);
  REQUIRE(commits.Exchange(update, absl::MakeSpan(center), kDeadline).ok());
  CHECK(commits.last_commit() == CommitState::kApplied);
  REQUIRE(sender.sent.size() == 3);
  CHECK(sender.sent[1].await().sequence() == 1);
  CHECK_FALSE(sender.sent[1].await().pull());
  CHECK(sender.sent[2].commit().sequence() == 2);
}

TEST_CASE_METHOD(Fixture, "a pull tells what became of a pending commit") {
  const CommitState state = GENERATE(CommitState::kApplied, CommitState::kNotApplied);
  sender.answers = {Lost(), {.commit = state}, {}};
  CHECK_FALSE(commits.Exchange(update, std::nullopt, kDeadline).ok());
  REQUIRE(commits.Exchange(std::nullopt, absl::MakeSpan(center), kDeadline).ok());
  CHECK(commits.last_commit() == state);
}

TEST_CASE_METHOD(Fixture, "while a commit is pending no other one is sent") {
  const ExchangeOutcome waiting{
      .status = absl::DeadlineExceededError("still waiting for 'b'"), .commit = CommitState::kApplied, .pending = true};
  sender.answers = {waiting, waiting, waiting, Applied(1), Applied(2)};
  for (int i = 0; i < 3; ++i) {
    const auto late = commits.Exchange(update, std::nullopt, kDeadline);
    CHECK(late.status() == waiting.status);
    CHECK(commits.last_commit() == (i == 0 ? CommitState::kApplied : CommitState::kNotApplied));
  }
  REQUIRE(commits.Exchange(update, std::nullopt, kDeadline).ok());
  int sent = 0;
  for (const v1::ExchangeHeader& header : sender.sent) sent += header.has_commit();
  CHECK(sent == 2);
  CHECK(sender.sent.back().commit().sequence() == 2);
}

TEST_CASE_METHOD(Fixture, "a commit that the server refuses is not pending") {
  sender.answers = {{.status = absl::InvalidArgumentError("NaN"), .commit = CommitState::kNotApplied}, Applied(1)};
  CHECK_FALSE(commits.Exchange(update, std::nullopt, kDeadline).ok());
  CHECK(commits.last_commit() == CommitState::kNotApplied);
  REQUIRE(commits.Exchange(update, std::nullopt, kDeadline).ok());
  CHECK(sender.sent.back().commit().sequence() == 2);
}

TEST_CASE_METHOD(Fixture, "a wrong length is refused before anything is sent") {
  std::vector<float> small(kFloats - 1);
  for (const auto& call :
       {commits.Exchange(small, absl::MakeSpan(center), kDeadline),
        commits.Exchange(update, absl::MakeSpan(small), kDeadline), commits.Exchange(small, std::nullopt, kDeadline),
        commits.Exchange(update, absl::Span<float>(), kDeadline)}) {
    CHECK(call.status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(sender.sent.empty());
  CHECK(commits.last_commit() == CommitState::kNotApplied);
}

TEST_CASE_METHOD(Fixture, "a wrong length is told of what was given, and of nothing else") {
  std::vector<float> small(kFloats - 1);
  const auto message = [](const absl::StatusOr<Exchanged>& call) { return std::string(call.status().message()); };
  CHECK_THAT(message(commits.Exchange(std::nullopt, absl::MakeSpan(small), kDeadline)),
             Catch::Contains("has 3 parameters, but the center has 2;"));
  CHECK_THAT(message(commits.Exchange(small, std::nullopt, kDeadline)),
             Catch::Contains("has 3 parameters, but the commit has 2;"));
  CHECK_THAT(message(commits.Exchange(update, absl::MakeSpan(small), kDeadline)),
             Catch::Contains("but the commit has 3 and the center has 2;"));
}

TEST_CASE_METHOD(Fixture, "a server that does not know the encoding makes the user upgrade") {
  sender.answers = {{.status = absl::UnimplementedError("encoding 1 is unknown.")}};
  CHECK_THAT(std::string(commits.Exchange(std::nullopt, absl::MakeSpan(center), kDeadline).status().message()),
             Catch::Contains("Upgrade the daemon"));
}

}  // namespace
}  // namespace paramd
