#include "server/pollers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/time/time.h"

namespace paramd {
namespace {

// A handler that takes as long without having stepped aside is relieved; or twice as long, as it happens to begin.
constexpr absl::Duration kLongHandler = absl::Milliseconds(10);

// What this thread handles as the one that polls.
struct Handling {
  std::atomic<uint64_t>* event = nullptr;  // null: it does not poll
  uint64_t number = 0;
  Pollers* pollers = nullptr;
};
thread_local Handling handling;

// Takes the polling from the handler of an event, unless it has ended or somebody else took it.
bool Take(std::atomic<uint64_t>* event, uint64_t number) { return event->compare_exchange_strong(number, 0); }

}  // namespace

Pollers::Pollers(Next next, int threads)
    : next_(std::move(next)), max_threads_(std::max(kMaxThreads, static_cast<size_t>(threads))) {
  {
    MutexLock lock(&mutex_);
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  watch_ = std::thread([this] { Watch(); });
}

Pollers::~Pollers() {
  watch_.join();
  // None is added any more.
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void Pollers::StepAside() {
  const Handling mine = std::exchange(handling, {});
  if (mine.event != nullptr && Take(mine.event, mine.number)) mine.pollers->HandOver();
}

void Pollers::HandOver() {
  MutexLock lock(&mutex_);
  polling_ = false;
  if (idle_ > 0 || over_ || threads_.size() >= max_threads_) {
    // If there is no other thread, the first that ends its handler polls.
    changed_.Signal();
    return;
  }
  try {
    threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    // The system has no thread for us: as above.
  }
}

void Pollers::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      ++idle_;
      while (polling_ && !over_) changed_.Wait(&mutex_);
      --idle_;
      if (over_) return;
      polling_ = true;
    }
    if (Poll()) continue;
    MutexLock lock(&mutex_);
    over_ = true;
    changed_.SignalAll();
    over_changed_.SignalAll();
    return;
  }
}

bool Pollers::Poll() {
  while (true) {
    Event* event = nullptr;
    bool ok = false;
    if (!next_(&event, &ok)) return false;
    const uint64_t number = ++last_event_;
    event_ = number;
    handling = {&event_, number, this};
    event->Fire(ok);
    handling = {};
    if (!Take(&event_, number)) return true;
  }
}

void Pollers::Watch() {
  uint64_t seen = 0;
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!over_) over_changed_.WaitWithTimeout(&mutex_, kLongHandler);
      if (over_) return;
    }
    const uint64_t now = event_;
    if (now != 0 && now == seen && Take(&event_, now)) HandOver();
    seen = now;
  }
}

}  // namespace paramd
