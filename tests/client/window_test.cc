#include "client/window.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "algorithms/algorithm.h"
#include "algorithms/registry.h"
#include "catch2/catch.hpp"
#include "client/exchange_under_way.h"
#include "tests/algorithms/halves.h"

namespace paramd {
namespace {

using Floats = std::vector<float>;

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

// No vector of an exchange can take another one's place.
static_assert(!std::is_move_assignable_v<Vector> && !std::is_copy_constructible_v<Vector>);
static_assert(!std::is_swappable_v<Vector> && !std::is_swappable_v<ExchangeVectors>);

enum class Buffers {
  kNone,
  kPrivate,  // as over gRPC: nobody else writes to them
  kShared,   // as shared memory: whatever is not given in them goes through them
};

// A center in memory, moved by the server half of an algorithm as if its one worker's commits were fresh. Before each
// commit others have added `others` to it.
class Center : public Exchanger {
 public:
  Center(Floats initial, ServerHalf* server, Buffers buffers)
      : center(std::move(initial)), server_(server), kind_(buffers) {
    if (buffers == Buffers::kNone) return;
    commit_buffer_.assign(center.size(), 0);
    center_buffer_.assign(center.size(), 0);
  }

  absl::StatusOr<Exchanged> Pull(absl::Span<float> out, absl::Duration) override {
    base_ = center;
    Give(center, out);
    return Exchanged{.version = version};
  }

  absl::StatusOr<Exchanged> Commit(absl::Span<const float>, absl::Duration) override {
    return absl::UnimplementedError("a window never commits alone");
  }

  absl::StatusOr<Exchanged> Exchange(absl::Span<const float> update, absl::Span<float> out, absl::Duration) override {
    threads.insert(std::this_thread::get_id());
    if (on_exchange) {
      if (absl::Status status = on_exchange(version + 1); !status.ok()) return status;
    }
    const Floats taken(update.begin(), update.end());
    if (kind_ == Buffers::kShared && update.data() != commit_buffer_.data()) {
      commit_buffer_ = taken;
      std::reverse(commit_buffer_.begin(), commit_buffer_.end());  // other numbers, in any case
    }
    for (float& value : center) value += others;
    const Floats before = center;
    Floats sum(center.size());
    server_->Merge({.version = version, .base_version = version},
                   {.commit = taken, .center = center, .base = base_, .sum = absl::MakeSpan(sum)});
    server_->Finish({.before = version}, {.center = center, .sum = sum, .next = absl::MakeSpan(center)});
    ++version;
    const Floats& answer = server_->answers_before_commit() ? before : center;
    base_ = answer;
    Give(answer, out);
    return Exchanged{.version = version};
  }

  absl::Span<float> commit_buffer() override { return absl::MakeSpan(commit_buffer_); }
  absl::Span<float> center_buffer() override { return absl::MakeSpan(center_buffer_); }
  void Cancel() override {}
  CommitState last_commit() const override { return state; }
  absl::Status ended() const override { return end; }

  Floats center;
  CommitState state = CommitState::kNone;  // of a commit whose exchange fails
  absl::Status end;
  float others = 0;
  int64_t version = 0;
  std::function<absl::Status(int64_t exchange)> on_exchange;  // counted from 1
  std::set<std::thread::id> threads;

 private:
  void Give(const Floats& answer, absl::Span<float> out) {
    std::copy(answer.begin(), answer.end(), out.begin());
    if (kind_ == Buffers::kShared && out.data() != center_buffer_.data()) {
      std::fill(center_buffer_.begin(), center_buffer_.end(), kNothing);
    }
  }

  ServerHalf* const server_;
  const Buffers kind_;
  Floats base_;
  Floats commit_buffer_;
  Floats center_buffer_;
};

// Parameters in spans of these lengths, apart from each other in memory.
class Tensors {
 public:
  explicit Tensors(const std::vector<size_t>& lengths) {
    for (const size_t length : lengths) tensors_.emplace_back(length, kNothing);
  }

  std::vector<absl::Span<float>> spans() {
    std::vector<absl::Span<float>> spans;
    for (Floats& tensor : tensors_) spans.push_back(absl::MakeSpan(tensor));
    return spans;
  }

  Floats Flat() const {
    Floats all;
    for (const Floats& tensor : tensors_) all.insert(all.end(), tensor.begin(), tensor.end());
    return all;
  }

  // One optimizer step, which depends on where it is taken and on which step it is.
  void Step(int64_t step) {
    for (Floats& tensor : tensors_) {
      for (float& w : tensor) w = w * 0.5F + static_cast<float>(step);
    }
  }

 private:
  std::vector<Floats> tensors_;
};

// Waits until `allowed` is at least `wanted`.
void Await(const std::atomic<int64_t>& allowed, int64_t wanted) {
  for (int64_t now = allowed; now < wanted; now = allowed) allowed.wait(now);
}

void Allow(std::atomic<int64_t>* allowed, int64_t value) {
  *allowed = value;
  allowed->notify_all();
}

// A training of `windows` times `window` steps as the definitions say, in vectors that nobody shares.
struct Expected {
  Floats parameters;
  Floats center;
};

Expected Compute(const std::string& algorithm, Floats center, float others, int windows, int window, bool overlap) {
  const testing::Halves halves = testing::MakeHalves(algorithm);
  ServerHalf* const server = halves.server.get();
  Floats w = center;
  Floats pulled = center;
  Floats base = center;
  Floats sent;
  Floats answer;
  int64_t step = 0;
  const auto adopt = [&] {
    const Floats absorbed = testing::Absorb(halves.worker.get(), answer, sent);
    for (size_t i = 0; i < w.size(); ++i) w[i] = (w[i] - sent[i]) + absorbed[i];
    pulled = absorbed;
  };
  for (int k = 0; k < windows; ++k) {
    for (int s = 0; s < window; ++s) {
      halves.worker->BeforeStep({absl::MakeSpan(w)});
      ++step;
      for (float& value : w) value = value * 0.5F + static_cast<float>(step);
      halves.worker->AfterStep({absl::MakeSpan(w)});
    }
    if (overlap && k > 0) adopt();
    sent = w;
    const Floats commit =
        halves.worker->commits_parameters() ? w : testing::MakeCommit(halves.worker.get(), window, w, pulled);
    for (float& value : center) value += others;
    const Floats before = center;
    center = testing::ApplyRound(server, center, {{.update = commit, .base = base}});
    answer = server->answers_before_commit() ? before : center;
    base = answer;
    if (!overlap) adopt();
  }
  if (overlap) adopt();
  return {w, center};
}

TEST_CASE("every algorithm gives the numbers of its definition, whatever the buffers, the overlap and the tensors") {
  constexpr int kWindows = 7;
  constexpr int kSteps = 3;
  for (const Algorithm* algorithm : ListAlgorithms()) {
    if (algorithm->make_server == nullptr) continue;
    for (const bool overlap : {false, true}) {
      for (const float others : {0.0F, 4.0F}) {
        for (const Buffers buffers : {Buffers::kNone, Buffers::kPrivate, Buffers::kShared}) {
          for (const std::vector<size_t>& lengths :
               std::vector<std::vector<size_t>>{{5000}, {2048, 1, 2951}, {0, 4999, 1}}) {
            CAPTURE(algorithm->name, overlap, others, static_cast<int>(buffers), lengths);
            Floats initial(5000);
            for (size_t i = 0; i < initial.size(); ++i) initial[i] = static_cast<float>(i % 64);
            const Expected expected = Compute(algorithm->name, initial, others, kWindows, kSteps, overlap);

            const testing::Halves halves = testing::MakeHalves(algorithm->name);
            Center center(initial, halves.server.get(), buffers);
            center.others = others;
            // With overlap an answer comes while the window's last step trains, so that it is adopted at its end.
            std::atomic<int64_t> allowed = 0;
            center.on_exchange = [&](int64_t exchange) {
              if (overlap) Await(allowed, exchange);
              return absl::OkStatus();
            };
            Tensors tensors(lengths);
            auto window =
                Window::Create(tensors.spans(), &center, halves.algorithm->make_worker(halves.hyperparameters),
                               halves.hyperparameters, {.communication_window = kSteps, .overlap = overlap});
            REQUIRE(window.ok());
            REQUIRE((*window)->Begin().ok());
            for (int64_t step = 1; step <= kWindows * kSteps; ++step) {
              REQUIRE((*window)->BeforeStep().ok());
              tensors.Step(step);
              REQUIRE((*window)->AfterStep().ok());
              REQUIRE((*window)->full() == (step % kSteps == 0 && !(*window)->exchanges_by_epoch()));
              if (step % kSteps != 0) continue;
              Allow(&allowed, step / kSteps - 1);
              REQUIRE((*window)->End().ok());
            }
            Allow(&allowed, kWindows);
            REQUIRE((*window)->Finish().ok());
            CHECK(tensors.Flat() == expected.parameters);
            CHECK(center.center == expected.center);
            const WindowStatistics statistics = (*window)->statistics();
            CHECK(statistics.steps == kWindows * kSteps);
            CHECK(statistics.exchanged == kWindows * kSteps);
            CHECK(statistics.exchanges == kWindows);
          }
        }
      }
    }
  }
}

// One worker with downpour, or another algorithm, on a center of four zeros; every step adds one to every parameter.
struct Loop {
  explicit Loop(const std::string& algorithm = "downpour", Buffers buffers = Buffers::kShared)
      : halves(testing::MakeHalves(algorithm)), center(Floats(4), halves.server.get(), buffers) {}

  absl::StatusOr<std::unique_ptr<Window>> Create(WindowOptions options) {
    if (options.communication_window == 0) options.communication_window = 2;
    return Window::Create({absl::MakeSpan(parameters)}, &center, std::move(halves.worker), halves.hyperparameters,
                          std::move(options));
  }

  std::unique_ptr<Window> Begin(WindowOptions options) {
    auto window = Create(std::move(options));
    REQUIRE(window.ok());
    REQUIRE((*window)->Begin().ok());
    return *std::move(window);
  }

  absl::Status Step(Window* window, double loss = 0) {
    if (absl::Status status = window->BeforeStep(); !status.ok()) return status;
    for (float& w : parameters) ++w;
    return window->AfterStep({.loss = loss});
  }

  testing::Halves halves;
  Center center;
  Floats parameters = Floats(4);
};

TEST_CASE(
    "steps are numbered and reported once, after their exchange, also those of one that a failed step leaves out") {
  const bool overlap = GENERATE(false, true);
  Loop loop;
  std::vector<int64_t> reported;
  std::atomic<int64_t> allowed = overlap ? 1 : 100;
  loop.center.on_exchange = [&](int64_t exchange) {
    Await(allowed, exchange);
    return absl::OkStatus();
  };
  const std::unique_ptr<Window> window =
      loop.Begin({.overlap = overlap, .on_window = [&](const std::vector<StepResult>& steps) {
                    for (const StepResult& step : steps) reported.push_back(step.step);
                    return absl::OkStatus();
                  }});
  for (int i = 0; i < 5; ++i) {
    REQUIRE(loop.Step(window.get()).ok());
    if (window->full()) REQUIRE(window->End().ok());
  }
  CHECK(reported == (overlap ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 2, 3, 4}));
  // The sixth step fails while the second exchange is out.
  Allow(&allowed, 100);
  CHECK(window->Abandon().ok());
  CHECK(reported == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(window->statistics().steps == 5);
  CHECK(window->statistics().exchanged == 4);
  CHECK(window->statistics().exchanges == 2);
  CHECK(loop.center.center == Floats(4, 4));
  CHECK(absl::IsFailedPrecondition(window->BeforeStep()));
  CHECK(window->Abandon().ok());
}

TEST_CASE("steps of an exchange whose answer the algorithm can't take are reported all the same") {
  class Refusing : public WorkerHalf {
    void MakeCommit(int64_t, absl::Span<const float>, absl::Span<const float>, absl::Span<float>) override {}
    void Absorb(absl::Span<const float>, absl::Span<float>) override { throw std::runtime_error("out of magic"); }
  };
  Loop loop;
  loop.halves.worker = std::make_unique<Refusing>();
  size_t reported = 0;
  const std::unique_ptr<Window> window =
      loop.Begin({.overlap = GENERATE(false, true), .on_window = [&](const std::vector<StepResult>& steps) {
                    reported += steps.size();
                    return absl::OkStatus();
                  }});
  REQUIRE(loop.Step(window.get()).ok());
  const absl::Status status = window->Finish();
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("Absorb") && Catch::Contains("out of magic"));
  CHECK(reported == 1);
}

// Sanitizers end a process that asks for as much.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("parameters whose exchanges do not fit into memory are an error") {
  constexpr size_t kFloats = size_t{1} << 42;
  constexpr size_t kBytes = kFloats * sizeof(float);
  // Addresses, and no memory.
  void* const addresses = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(addresses != MAP_FAILED);
  Loop loop;
  const auto window = Window::Create({absl::MakeSpan(static_cast<float*>(addresses), kFloats)}, &loop.center,
                                     std::move(loop.halves.worker), loop.halves.hyperparameters, {});
  REQUIRE(window.ok());
  const absl::Status begun = (*window)->Begin();
  CHECK(absl::IsResourceExhausted(begun));
  CHECK_THAT(std::string(begun.message()), Catch::Contains("4398046511104 parameters"));
  munmap(addresses, kBytes);
}
#endif

TEST_CASE("steps of an exchange that failed are reported if its commit was applied") {
  Loop loop;
  loop.center.state = GENERATE(CommitState::kApplied, CommitState::kNotApplied, CommitState::kUnknown);
  loop.center.on_exchange = [](int64_t) { return absl::DeadlineExceededError("waited for others"); };
  size_t reported = 0;
  const std::unique_ptr<Window> window =
      loop.Begin({.overlap = GENERATE(false, true), .on_window = [&](const std::vector<StepResult>& steps) {
                    reported += steps.size();
                    return absl::OkStatus();
                  }});
  REQUIRE(loop.Step(window.get()).ok());
  CHECK(absl::IsDeadlineExceeded(window->Finish()));
  const bool applied = loop.center.state == CommitState::kApplied;
  CHECK(reported == (applied ? 1 : 0));
  CHECK(window->statistics().exchanged == (applied ? 1 : 0));
  CHECK(window->statistics().exchanges == 0);
}

TEST_CASE("the first error ends a window, and every later call returns it") {
  Loop loop;
  loop.center.on_exchange = [](int64_t exchange) {
    return exchange < 2 ? absl::OkStatus() : absl::AbortedError("a newer incarnation");
  };
  const std::unique_ptr<Window> window = loop.Begin({.communication_window = 1, .overlap = GENERATE(false, true)});
  for (int i = 0; i < 2; ++i) {
    REQUIRE(loop.Step(window.get()).ok());
    window->End().IgnoreError();
  }
  CHECK(absl::IsAborted(window->Finish()));
  CHECK(absl::IsAborted(window->BeforeStep()));
  CHECK(absl::IsAborted(window->AfterStep()));
  CHECK(absl::IsAborted(window->End()));
  CHECK(window->statistics().exchanges == 1);
}

TEST_CASE("abandoning tells what became of an exchange that failed, whoever met its error first") {
  const bool overlap = GENERATE(false, true);
  const bool met = GENERATE(false, true);
  Loop loop;
  loop.center.on_exchange = [](int64_t) { return absl::CancelledError("the exchange"); };
  const std::unique_ptr<Window> window = loop.Begin({.communication_window = 1, .overlap = overlap});
  REQUIRE(loop.Step(window.get()).ok());
  CHECK(absl::IsCancelled(window->End()) == !overlap);
  if (met) CHECK(absl::IsCancelled(window->Finish()));
  CHECK(absl::IsCancelled(window->Abandon()));
  CHECK(absl::IsCancelled(window->Abandon()));
}

TEST_CASE("a window whose exchanger has ended ends at the next step, with the reason") {
  const bool overlap = GENERATE(false, true);
  Loop loop;
  const std::unique_ptr<Window> window = loop.Begin({.communication_window = 100, .overlap = overlap});
  REQUIRE(loop.Step(window.get()).ok());
  const bool within_step = GENERATE(false, true);
  if (within_step) REQUIRE(window->BeforeStep().ok());
  loop.center.end = absl::NotFoundError("the model is gone");
  CHECK((within_step ? window->AfterStep() : window->BeforeStep()) == loop.center.end);
  CHECK(window->Finish() == loop.center.end);
  CHECK(window->statistics().steps == 1);
  CHECK(loop.center.version == 0);
}

TEST_CASE("a window that is not asked after every step is full until it ends") {
  Loop loop;
  const std::unique_ptr<Window> window = loop.Begin({.communication_window = 3});
  for (int step = 1; step <= 4; ++step) {
    REQUIRE(loop.Step(window.get()).ok());
    CHECK(window->full() == (step >= 3));
  }
  REQUIRE(window->End().ok());
  CHECK_FALSE(window->full());
  CHECK(loop.center.center == Floats(4, 4));
}

TEST_CASE("overlapped exchanges run on one thread that is kept, and others on the caller's") {
  const bool overlap = GENERATE(false, true);
  Loop loop;
  const std::unique_ptr<Window> window = loop.Begin({.communication_window = 1, .overlap = overlap});
  for (int i = 0; i < 20; ++i) {
    REQUIRE(loop.Step(window.get()).ok());
    REQUIRE(window->End().ok());
  }
  REQUIRE(window->Finish().ok());
  CHECK(loop.center.threads.size() == 1);
  CHECK(loop.center.threads.count(std::this_thread::get_id()) == (overlap ? 0 : 1));
}

TEST_CASE("a window that goes while an exchange is out waits for it") {
  Loop loop;
  std::atomic<int64_t> allowed = 0;
  std::atomic<bool> through = false;
  loop.center.on_exchange = [&](int64_t) {
    Await(allowed, 1);
    through = true;
    return absl::OkStatus();
  };
  std::unique_ptr<Window> window = loop.Begin({.overlap = true});
  REQUIRE(loop.Step(window.get()).ok());
  REQUIRE(window->End().ok());
  std::thread later([&] {
    std::this_thread::yield();
    Allow(&allowed, 1);
  });
  window.reset();
  CHECK(through);
  later.join();
}

TEST_CASE("steps before Begin, and a second Begin, are refused") {
  Loop loop;
  auto window = loop.Create({});
  REQUIRE(window.ok());
  SECTION("a step") {
    CHECK(absl::IsFailedPrecondition((*window)->BeforeStep()));
    CHECK(absl::IsFailedPrecondition((*window)->Begin()));
  }
  SECTION("a second Begin") {
    CHECK((*window)->Begin().ok());
    CHECK(absl::IsFailedPrecondition((*window)->Begin()));
  }
}

TEST_CASE("tensors that lie in a row in the commit buffer are sent from there") {
  Loop loop("aeasgd");
  const absl::Span<float> buffer = loop.center.commit_buffer();
  auto window = Window::Create({buffer.first(1), buffer.subspan(1, 2), buffer.subspan(3)}, &loop.center,
                               std::move(loop.halves.worker), loop.halves.hyperparameters, {});
  REQUIRE(window.ok());
  REQUIRE((*window)->Begin().ok());
  REQUIRE((*window)->BeforeStep().ok());
  for (float& w : buffer) w = 10;
  REQUIRE((*window)->AfterStep().ok());
  REQUIRE((*window)->Finish().ok());
  CHECK(loop.center.center == Floats(4, 2));
  CHECK(Floats(buffer.begin(), buffer.end()) == Floats(4, 8));
}

TEST_CASE("tensors that share memory are refused") {
  Loop loop;
  Floats memory(4);
  const absl::Span<float> all = absl::MakeSpan(memory);
  for (const std::vector<absl::Span<float>>& tensors :
       std::vector<std::vector<absl::Span<float>>>{{all, all}, {all.subspan(2), all.first(3)}, {all, all.subspan(3)}}) {
    CHECK(absl::IsInvalidArgument(
        Window::Create(tensors, &loop.center, nullptr, loop.halves.hyperparameters, {}).status()));
  }
  CHECK(Window::Create({all.subspan(2), all.first(2)}, &loop.center, nullptr, loop.halves.hyperparameters, {}).ok());
}

TEST_CASE("tensors of more floats than memory holds are refused, also where their sum wraps") {
  Loop loop;
  Floats memory(4);
  const auto span = [&](size_t floats) { return absl::MakeSpan(memory.data(), floats); };
  constexpr size_t kHalf = size_t{1} << 63;
  for (const std::vector<absl::Span<float>>& tensors : std::vector<std::vector<absl::Span<float>>>{
           {span(kHalf), span(kHalf + 4)}, {span(kHalf / 2)}, {span(kHalf / 4 - 1), span(1)}}) {
    const absl::Status refused =
        Window::Create(tensors, &loop.center, nullptr, loop.halves.hyperparameters, {}).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("more than any memory holds"));
  }
}

TEST_CASE("the windows of one participant number its steps on") {
  int64_t last_step = 0;
  std::vector<int64_t> reported;
  for (int i = 0; i < 2; ++i) {
    Loop loop;
    const std::unique_ptr<Window> window =
        loop.Begin({.last_step = &last_step, .on_window = [&](const std::vector<StepResult>& steps) {
                      for (const StepResult& step : steps) reported.push_back(step.step);
                      return absl::OkStatus();
                    }});
    for (int step = 0; step < 2; ++step) REQUIRE(loop.Step(window.get()).ok());
    REQUIRE(window->Finish().ok());
    CHECK(window->statistics().steps == 2);
  }
  CHECK(reported == std::vector<int64_t>{1, 2, 3, 4});
}

TEST_CASE("tensors that lie in the exchanger's buffers elsewhere are refused") {
  Loop loop("aeasgd");
  const absl::Span<float> buffer = GENERATE(0, 1) == 0 ? loop.center.commit_buffer() : loop.center.center_buffer();
  Floats elsewhere(2);
  const auto window = Window::Create({absl::MakeSpan(elsewhere), buffer.subspan(1, 2)}, &loop.center,
                                     std::move(loop.halves.worker), loop.halves.hyperparameters, {});
  CHECK(absl::IsInvalidArgument(window.status()));
}

}  // namespace
}  // namespace paramd
