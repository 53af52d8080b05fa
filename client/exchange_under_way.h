// What belongs to one exchange of a window. Internal to the client.
#ifndef PARAMD_CLIENT_EXCHANGE_UNDER_WAY_H_
#define PARAMD_CLIENT_EXCHANGE_UNDER_WAY_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/exchanger.h"
#include "client/window.h"
#include "sync/mutex.h"

namespace paramd {

// A vector of floats with one owner: memory of its own, or lent by an exchanger. It can be handed on, and is empty
// then, but never assigned: no other vector can take its place.
class Vector {
 public:
  Vector() = default;
  Vector(Vector&& other) noexcept : own_(std::move(other.own_)), floats_(std::exchange(other.floats_, {})) {}
  Vector& operator=(Vector&&) = delete;

  static Vector Own(size_t floats);
  // Of `lent`, if that has the length, else of its own.
  static Vector LentOrOwn(absl::Span<float> lent, size_t floats);

  absl::Span<float> floats() const { return floats_; }

 private:
  Vector(std::unique_ptr<float[]> own, absl::Span<float> floats) : own_(std::move(own)), floats_(floats) {}

  std::unique_ptr<float[]> own_;
  absl::Span<float> floats_;
};

// The vectors of an exchange, each of the center's length or empty. Whoever holds the object owns them; while an
// exchange is under way, that is the exchange.
struct ExchangeVectors {
  // What is committed. Where W₁ has no vector of its own, it is kept here, and the commit made in its place.
  Vector commit;
  // θ arrives here, as it can't overwrite a W that is being sent or that Absorb wants.
  Vector center;
  // With overlap, for an algorithm that commits a difference: W₁, and from the commit to the answer the W that the
  // commit was made of.
  Vector reference;
};

// One exchange that runs on a second thread, and all that is its own.
struct ExchangeUnderWay {
  ExchangeVectors vectors;
  int64_t minibatches = 0;        // λ
  std::vector<StepResult> steps;  // to be reported when it is through
  std::future<absl::StatusOr<Exchanged>> answer;
};

// A thread that runs one call after another, and waits in between. Thread-compatible.
class ExchangeThread {
 public:
  using Call = std::packaged_task<absl::StatusOr<Exchanged>()>;

  ExchangeThread() = default;
  // Runs what it was given, first.
  ~ExchangeThread();

  ExchangeThread(const ExchangeThread&) = delete;
  ExchangeThread& operator=(const ExchangeThread&) = delete;

  // Starts the thread, at first.
  std::future<absl::StatusOr<Exchanged>> Run(std::function<absl::StatusOr<Exchanged>()> call);

 private:
  void Work();

  std::thread thread_;  // of the caller

  Mutex mutex_;
  CondVar changed_;
  Call next_ ABSL_GUARDED_BY(mutex_);  // invalid: none
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_CLIENT_EXCHANGE_UNDER_WAY_H_
