#include "client/window.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/exchange_under_way.h"
#include "client/guarded.h"

namespace paramd {
namespace {

using SteadyClock = std::chrono::steady_clock;

absl::Duration Since(SteadyClock::time_point start) { return absl::FromChrono(SteadyClock::now() - start); }

// Adds the time of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(absl::Duration* total) : total_(total) {}
  ~Stopwatch() { *total_ += Since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration* const total_;
  const SteadyClock::time_point start_ = SteadyClock::now();
};

// Of a piece that the algorithm gets: what one pass over it leaves in the first-level cache is there for the next.
constexpr size_t kPieceFloats = 2048;

// The parameters of a model, in spans that leave nothing out between them in the flattened center.
class Parameters {
 public:
  explicit Parameters(const std::vector<absl::Span<float>>& spans) {
    for (const absl::Span<float> span : spans) {
      size_ += span.size();
      if (span.empty()) continue;
      if (!spans_.empty() && spans_.back().data() + spans_.back().size() == span.data()) {
        spans_.back() = absl::MakeSpan(spans_.back().data(), spans_.back().size() + span.size());
      } else {
        spans_.push_back(span);
      }
    }
  }

  size_t size() const { return size_; }
  absl::Span<const absl::Span<float>> spans() const { return spans_; }
  // All of them, if they are in one place.
  absl::Span<float> whole() const { return spans_.size() == 1 ? spans_[0] : absl::Span<float>(); }

  // Whether no two spans have memory in common.
  bool Disjoint() const {
    std::vector<absl::Span<float>> sorted = spans_;
    const std::less<const float*> less;
    std::sort(sorted.begin(), sorted.end(),
              [&](absl::Span<float> a, absl::Span<float> b) { return less(a.data(), b.data()); });
    return std::adjacent_find(sorted.begin(), sorted.end(), [&](absl::Span<float> a, absl::Span<float> b) {
             return less(b.data(), a.data() + a.size());
           }) == sorted.end();
  }

  bool Overlap(absl::Span<const float> memory) const {
    const std::less<const float*> less;
    return std::any_of(spans_.begin(), spans_.end(), [&](absl::Span<float> span) {
      return less(span.data(), memory.data() + memory.size()) && less(memory.data(), span.data() + span.size());
    });
  }

  // Calls work(begin, parameters) piece by piece, until one fails; `begin` is in the flattened center.
  template <typename Work>
  absl::Status ForEachPiece(const Work& work) const {
    size_t begin = 0;
    for (const absl::Span<float> span : spans_) {
      for (size_t i = 0; i < span.size(); i += kPieceFloats) {
        const absl::Span<float> piece = span.subspan(i, kPieceFloats);
        if (absl::Status status = work(begin, piece); !status.ok()) return status;
        begin += piece.size();
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<absl::Span<float>> spans_;
  size_t size_ = 0;
};

// Nothing in memory is larger, so that neither sums nor addresses wrap.
constexpr size_t kMaxFloats = std::numeric_limits<ptrdiff_t>::max() / sizeof(float);

absl::Status CheckSizes(const std::vector<absl::Span<float>>& parameters) {
  size_t left = kMaxFloats;
  for (const absl::Span<float> span : parameters) {
    if (span.size() > left) {
      return absl::InvalidArgumentError(absl::StrCat("a span of the parameters has ", span.size(),
                                                     " floats, more than any memory holds with the spans before it; "
                                                     "give the floats of each tensor"));
    }
    left -= span.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> WindowMinibatches(int64_t option, const Hyperparameters& hyperparameters) {
  if (option > 0) return option;
  const auto found = hyperparameters.find("communication_window");
  if (found == hyperparameters.end()) {
    return absl::InvalidArgumentError(
        "neither the options nor the model's hyperparameters have a communication_window: set one, in minibatches");
  }
  // The bound keeps the conversion defined.
  if (!(found->second >= 1 && found->second <= 1e15) || found->second != std::floor(found->second)) {
    return absl::InvalidArgumentError(absl::StrCat("the model's communication_window is ", found->second,
                                                   ", but must be a whole number of minibatches, at least 1"));
  }
  return static_cast<int64_t>(found->second);
}

}  // namespace

class Window::Impl {
 public:
  Impl(Parameters parameters, Exchanger* exchanger, GuardedHalf half, WindowOptions options)
      : parameters_(std::move(parameters)),
        exchanger_(exchanger),
        half_(std::move(half)),
        options_(std::move(options)) {}
  ~Impl() {
    if (under_way_.has_value()) under_way_->answer.wait();
  }

  absl::Status Check(const Hyperparameters& hyperparameters);
  // Whether this is a child of the process that made it: its second thread stayed there.
  bool forked() const { return getpid() != process_; }

  absl::Status Begin() {
    return Checked([this] { return PullFirst(); });
  }
  absl::Status BeforeStep();
  absl::Status AfterStep(StepResult result);
  bool full() const { return window_ > 0 && minibatches_ >= window_; }
  bool exchanges_by_epoch() const { return half_.exchange_point() == ExchangePoint::kEpoch; }
  absl::Status End() {
    return Checked([this] { return EndWindow(); });
  }
  absl::Status Finish();
  absl::Status Abandon();
  WindowStatistics statistics() const;

 private:
  bool exchanges() const { return half_.exchange_point() != ExchangePoint::kNever; }
  // Whether commits are parameters that are sent from where they are.
  bool sends_in_place() const {
    return half_.commits_parameters() && !options_.overlap && !parameters_.whole().empty();
  }

  absl::Status CheckProcess() const {
    if (!forked()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("this window belongs to process ", process_,
                                                      ", and this is process ", getpid(),
                                                      ", forked from it; fork first, and join in the child"));
  }

  absl::Status CheckExchanger() const { return exchanger_ == nullptr ? absl::OkStatus() : exchanger_->ended(); }

  // Keeps the first error that any call came to.
  template <typename Call>
  absl::Status Checked(const Call& call) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    if (error_.ok()) error_ = CallUserCode(call, "a window");
    return error_;
  }

  absl::Status PullFirst();
  absl::Status EndWindow();
  absl::Status Exchange(int64_t minibatches, const std::vector<StepResult>& steps);
  absl::Status StartExchange(int64_t minibatches, std::vector<StepResult> steps);
  // Waits for the exchange under way and counts it; its vectors are ours again, its steps in `steps`.
  absl::Status AwaitExchange(std::vector<StepResult>* steps);
  absl::Status FinishExchange();

  // What is committed after `minibatches`. With overlap the reference becomes W.
  absl::Status MakeCommit(int64_t minibatches);
  // W and W₁ from θ, after an exchange without overlap.
  absl::Status Absorb();
  // The same after one with overlap, by what it changes in the W that it was made of.
  absl::Status Adopt();
  absl::StatusOr<Exchanged> CallExchanger(absl::Span<const float> commit, absl::Span<float> center) const;
  void Count(const Exchanged& exchanged, int64_t minibatches);
  // An exchange came to `status`: its steps are reported if its commit was applied all the same.
  absl::Status Failed(absl::Status status, int64_t minibatches, const std::vector<StepResult>& steps);
  absl::Status Report(const std::vector<StepResult>& steps);

  // W₁: not needed where the parameters themselves are committed.
  absl::Span<float> reference() const {
    return options_.overlap ? vectors_->reference.floats() : vectors_->commit.floats();
  }

  // Constant after Check.
  const Parameters parameters_;
  Exchanger* const exchanger_;
  const GuardedHalf half_;
  const WindowOptions options_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  const pid_t process_ = getpid();
  int64_t window_ = 0;  // 0: Ends by the epoch

  bool begun_ = false;
  absl::Status error_;
  absl::Status failed_exchange_;            // what it came to
  int64_t minibatches_ = 0;                 // of this window: λ so far
  std::vector<StepResult> steps_;           // of this window, if on_window wants them
  std::optional<ExchangeVectors> vectors_;  // while no exchange is under way
  std::optional<ExchangeUnderWay> under_way_;
  double staleness_ = 0;  // summed
  WindowStatistics statistics_;
  ExchangeThread thread_;
};

absl::Status Window::Impl::Check(const Hyperparameters& hyperparameters) {
  if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
  if (!parameters_.Disjoint()) {
    return absl::InvalidArgumentError("the spans of the parameters overlap: give each tensor memory of its own");
  }
  if (!exchanges_by_epoch()) {
    absl::StatusOr<int64_t> window = WindowMinibatches(options_.communication_window, hyperparameters);
    if (!window.ok()) return window.status();
    window_ = *window;
  }
  if (!exchanges()) return absl::OkStatus();
  if (exchanger_ == nullptr) {
    return absl::InvalidArgumentError(
        "the algorithm exchanges with a server, but the loop was given no exchanger: pass a Worker that has joined, or "
        "train with the algorithm single");
  }
  const absl::Span<const float> commit = exchanger_->commit_buffer();
  const bool in_place = sends_in_place() && parameters_.whole().data() == commit.data();
  if ((!in_place && parameters_.Overlap(commit)) || parameters_.Overlap(exchanger_->center_buffer())) {
    return absl::InvalidArgumentError(
        "the model keeps its parameters in a buffer of the exchanger's, which would be overwritten: they can be in the "
        "commit buffer, if the algorithm commits parameters and exchanges do not overlap with training");
  }
  return absl::OkStatus();
}

absl::Status Window::Impl::PullFirst() {
  if (begun_) return absl::FailedPreconditionError("a window begins once: make another one");
  begun_ = true;
  if (!exchanges()) return absl::OkStatus();
  const size_t floats = parameters_.size();
  try {
    vectors_.emplace(
        ExchangeVectors{.commit = sends_in_place() ? Vector() : Vector::LentOrOwn(exchanger_->commit_buffer(), floats),
                        .center = Vector::LentOrOwn(exchanger_->center_buffer(), floats),
                        .reference = options_.overlap && !half_.commits_parameters() ? Vector::Own(floats) : Vector()});
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for the exchanges of ", floats, " parameters; use a smaller model"));
  }
  const bool whole = !parameters_.whole().empty();
  const absl::Span<float> center = whole ? parameters_.whole() : vectors_->center.floats();
  absl::StatusOr<Exchanged> first =
      CallUserCode([&] { return exchanger_->Pull(center, options_.exchange_timeout); }, "Exchanger::Pull");
  if (!first.ok()) return first.status();
  return parameters_.ForEachPiece([&](size_t begin, absl::Span<float> w) {
    if (!whole) std::copy_n(center.data() + begin, w.size(), w.data());
    if (!half_.commits_parameters()) std::copy(w.begin(), w.end(), reference().data() + begin);
    return absl::OkStatus();
  });
}

absl::Status Window::Impl::BeforeStep() {
  return Checked([this] {
    if (!begun_) return absl::FailedPreconditionError("a window's Begin comes before its first step");
    if (under_way_.has_value() && under_way_->answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      if (absl::Status status = FinishExchange(); !status.ok()) return status;
    }
    if (absl::Status status = CheckExchanger(); !status.ok()) return status;
    return half_.BeforeStep(statistics_.steps, parameters_.spans());
  });
}

absl::Status Window::Impl::AfterStep(StepResult result) {
  return Checked([&] {
    if (!begun_) return absl::FailedPreconditionError("a window's Begin comes before its first step");
    if (absl::Status status = CheckExchanger(); !status.ok()) return status;
    if (absl::Status status = half_.AfterStep(statistics_.steps, parameters_.spans()); !status.ok()) return status;
    ++minibatches_;
    ++statistics_.steps;
    result.step = options_.last_step == nullptr ? statistics_.steps : ++*options_.last_step;
    result.time_s = absl::ToDoubleSeconds(Since(start_));
    if (options_.on_window != nullptr) steps_.push_back(std::move(result));
    return absl::OkStatus();
  });
}

absl::Status Window::Impl::EndWindow() {
  if (under_way_.has_value()) {
    if (absl::Status status = FinishExchange(); !status.ok()) return status;
  }
  if (minibatches_ == 0) return absl::OkStatus();
  const int64_t minibatches = std::exchange(minibatches_, 0);
  std::vector<StepResult> steps = std::exchange(steps_, {});
  if (!exchanges()) return Report(steps);
  return options_.overlap ? StartExchange(minibatches, std::move(steps)) : Exchange(minibatches, steps);
}

absl::Status Window::Impl::Finish() {
  return Checked([this] {
    if (absl::Status status = EndWindow(); !status.ok()) return status;
    return under_way_.has_value() ? FinishExchange() : absl::OkStatus();
  });
}

absl::Status Window::Impl::Abandon() {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  if (error_.ok()) error_ = absl::FailedPreconditionError("the window was abandoned");
  if (!under_way_.has_value()) return failed_exchange_;
  return CallUserCode(
      [this] {
        std::vector<StepResult> steps;
        absl::Status status = AwaitExchange(&steps);
        return status.ok() ? Report(steps) : status;
      },
      "a window");
}

WindowStatistics Window::Impl::statistics() const {
  WindowStatistics statistics = statistics_;
  if (statistics.exchanges > 0) statistics.mean_staleness = staleness_ / static_cast<double>(statistics.exchanges);
  return statistics;
}

absl::Status Window::Impl::Exchange(int64_t minibatches, const std::vector<StepResult>& steps) {
  absl::Status absorbed;
  bool applied = false;
  {
    Stopwatch stopwatch(&statistics_.exchanging);
    absl::Span<const float> commit = parameters_.whole();
    if (!sends_in_place()) {
      if (absl::Status made = MakeCommit(minibatches); !made.ok()) return made;
      commit = vectors_->commit.floats();
    }
    absl::StatusOr<Exchanged> exchanged = CallExchanger(commit, vectors_->center.floats());
    if (!exchanged.ok()) return Failed(exchanged.status(), minibatches, steps);
    applied = exchanged->applied;
    if (applied) Count(*exchanged, minibatches);
    absorbed = Absorb();
  }
  absl::Status reported = applied ? Report(steps) : absl::OkStatus();
  return absorbed.ok() ? reported : absorbed;
}

absl::Status Window::Impl::StartExchange(int64_t minibatches, std::vector<StepResult> steps) {
  Stopwatch stopwatch(&statistics_.exchanging);
  if (absl::Status made = MakeCommit(minibatches); !made.ok()) return made;
  const absl::Span<const float> commit = vectors_->commit.floats();
  const absl::Span<float> center = vectors_->center.floats();
  std::future<absl::StatusOr<Exchanged>> answer =
      thread_.Run([this, commit, center] { return CallExchanger(commit, center); });
  under_way_.emplace(ExchangeUnderWay{.vectors = *std::move(vectors_),
                                      .minibatches = minibatches,
                                      .steps = std::move(steps),
                                      .answer = std::move(answer)});
  vectors_.reset();
  return absl::OkStatus();
}

absl::Status Window::Impl::AwaitExchange(std::vector<StepResult>* steps) {
  Stopwatch stopwatch(&statistics_.exchanging);
  absl::StatusOr<Exchanged> exchanged = under_way_->answer.get();
  vectors_.emplace(std::move(under_way_->vectors));
  const int64_t minibatches = under_way_->minibatches;
  *steps = std::move(under_way_->steps);
  under_way_.reset();
  if (!exchanged.ok()) return Failed(exchanged.status(), minibatches, *steps);
  if (exchanged->applied) {
    Count(*exchanged, minibatches);
  } else {
    steps->clear();
  }
  return absl::OkStatus();
}

absl::Status Window::Impl::FinishExchange() {
  std::vector<StepResult> steps;
  if (absl::Status status = AwaitExchange(&steps); !status.ok()) return status;
  absl::Status adopted;
  {
    Stopwatch stopwatch(&statistics_.exchanging);
    adopted = Adopt();
  }
  absl::Status reported = Report(steps);
  return adopted.ok() ? reported : adopted;
}

absl::Status Window::Impl::MakeCommit(int64_t minibatches) {
  const absl::Span<float> commit = vectors_->commit.floats();
  return parameters_.ForEachPiece([&](size_t begin, absl::Span<float> w) {
    if (half_.commits_parameters()) {
      std::copy(w.begin(), w.end(), commit.data() + begin);
      return absl::OkStatus();
    }
    const absl::Span<float> start = reference().subspan(begin, w.size());
    absl::Status status = half_.MakeCommit(statistics_.steps, minibatches, w, start, commit.subspan(begin, w.size()));
    if (options_.overlap) std::copy(w.begin(), w.end(), start.data());
    return status;
  });
}

absl::Status Window::Impl::Absorb() {
  const absl::Span<const float> center = vectors_->center.floats();
  return parameters_.ForEachPiece([&](size_t begin, absl::Span<float> w) {
    absl::Status status = half_.Absorb(statistics_.steps, center.subspan(begin, w.size()), w);
    if (!half_.commits_parameters()) std::copy(w.begin(), w.end(), reference().data() + begin);
    return status;
  });
}

// W += Absorb(θ, sent) − sent, in an order that needs no further vector and is exact if W has not moved since.
absl::Status Window::Impl::Adopt() {
  const absl::Span<const float> center = vectors_->center.floats();
  const absl::Span<float> all_sent = half_.commits_parameters() ? vectors_->commit.floats() : reference();
  return parameters_.ForEachPiece([&](size_t begin, absl::Span<float> w) {
    // Not through the spans, which check every index.
    float* const parameters = w.data();
    float* const sent = all_sent.data() + begin;
    const size_t n = w.size();
    for (size_t i = 0; i < n; ++i) parameters[i] -= sent[i];
    absl::Status status = half_.Absorb(statistics_.steps, center.subspan(begin, n), absl::MakeSpan(sent, n));
    for (size_t i = 0; i < n; ++i) parameters[i] += sent[i];
    return status;
  });
}

absl::StatusOr<Exchanged> Window::Impl::CallExchanger(absl::Span<const float> commit, absl::Span<float> center) const {
  return CallUserCode([&] { return exchanger_->Exchange(commit, center, options_.exchange_timeout); },
                      "Exchanger::Exchange");
}

void Window::Impl::Count(const Exchanged& exchanged, int64_t minibatches) {
  ++statistics_.exchanges;
  statistics_.exchanged += minibatches;
  staleness_ += static_cast<double>(exchanged.staleness);
}

absl::Status Window::Impl::Failed(absl::Status status, int64_t minibatches, const std::vector<StepResult>& steps) {
  failed_exchange_ = status;
  const CommitState commit = exchanger_->last_commit();
  if (commit == CommitState::kUnknown && options_.on_unknown != nullptr) options_.on_unknown(steps);
  if (commit != CommitState::kApplied) return status;
  statistics_.exchanged += minibatches;
  Report(steps).IgnoreError();
  return status;
}

absl::Status Window::Impl::Report(const std::vector<StepResult>& steps) {
  if (options_.on_window == nullptr || steps.empty()) return absl::OkStatus();
  return CallUserCode([&] { return options_.on_window(steps); }, "on_window after step ", statistics_.steps);
}

// ---------------------------------------------------------------------------------------------------------------------

Window::Window(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Window::~Window() {
  if (impl_->forked()) static_cast<void>(impl_.release());
}

absl::Status Window::CheckOptions(const WindowOptions& options) {
  if (options.communication_window < 0) {
    return absl::InvalidArgumentError(absl::StrCat("communication_window is ", options.communication_window,
                                                   ": give the minibatches between two exchanges, or 0 for the "
                                                   "model's own"));
  }
  if (options.exchange_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange_timeout is ", absl::FormatDuration(options.exchange_timeout), ", but must be positive"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Window>> Window::Create(std::vector<absl::Span<float>> parameters, Exchanger* exchanger,
                                                       std::unique_ptr<WorkerHalf> half,
                                                       const Hyperparameters& hyperparameters, WindowOptions options) {
  if (absl::Status status = CheckSizes(parameters); !status.ok()) return status;
  absl::StatusOr<GuardedHalf> guarded = GuardedHalf::Create(std::move(half));
  if (!guarded.ok()) return guarded.status();
  auto impl = std::make_unique<Impl>(Parameters(parameters), exchanger, *std::move(guarded), std::move(options));
  if (absl::Status status = impl->Check(hyperparameters); !status.ok()) return status;
  return std::unique_ptr<Window>(new Window(std::move(impl)));
}

absl::Status Window::Begin() { return impl_->Begin(); }
absl::Status Window::BeforeStep() { return impl_->BeforeStep(); }
absl::Status Window::AfterStep(StepResult result) { return impl_->AfterStep(std::move(result)); }
bool Window::full() const { return impl_->full(); }
bool Window::exchanges_by_epoch() const { return impl_->exchanges_by_epoch(); }
absl::Status Window::End() { return impl_->End(); }
absl::Status Window::Finish() { return impl_->Finish(); }
absl::Status Window::Abandon() { return impl_->Abandon(); }
WindowStatistics Window::statistics() const { return impl_->statistics(); }

}  // namespace paramd
