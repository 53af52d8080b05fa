#include "server/pollers.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/await.h"

namespace paramd {
namespace {

// A queue of functions, served by pollers.
class Queue {
 public:
  explicit Queue(int threads) {
    pollers_.emplace([this](Event** event, bool* ok) { return Next(event, ok); }, threads);
  }
  ~Queue() {
    {
      MutexLock lock(&mutex_);
      over_ = true;
    }
    changed_.SignalAll();
    pollers_.reset();
  }

  void Post(std::function<void()> handler) {
    {
      MutexLock lock(&mutex_);
      events_.push_back(std::make_unique<Call>(std::move(handler)));
    }
    changed_.Signal();
  }

  // The most threads that waited for an event at once.
  int most_polling() const { return most_polling_; }

 private:
  struct Call : Event {
    explicit Call(std::function<void()> run) : handler(std::move(run)) {}
    void Fire(bool /*ok*/) override {
      handler();
      delete this;
    }
    const std::function<void()> handler;
  };

  bool Next(Event** event, bool* ok) {
    MutexLock lock(&mutex_);
    most_polling_ = std::max<int>(most_polling_, ++polling_);
    while (events_.empty() && !over_) changed_.Wait(&mutex_);
    --polling_;
    if (events_.empty()) return false;
    *event = events_.front().release();
    *ok = true;
    events_.pop_front();
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<Call>> events_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  int polling_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> most_polling_{0};
  std::optional<Pollers> pollers_;
};

void Block(const std::atomic<bool>& until) {
  while (!until) std::this_thread::yield();
}

TEST_CASE("One thread polls and handles what comes, in order") {
  std::vector<int> order;
  std::set<std::thread::id> threads;
  std::atomic<bool> ended{false};
  Queue queue(4);
  for (int i = 0; i < 1000; ++i) {
    queue.Post([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    });
  }
  queue.Post([&] { ended = true; });
  REQUIRE(Await([&] { return ended.load(); }));
  CHECK(order.size() == 1000);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(threads.size() == 1);
  CHECK(queue.most_polling() == 1);
}

TEST_CASE("However many handlers step aside, somebody polls, and never more than one") {
  std::atomic<bool> release{false};
  std::atomic<int> aside{0};
  std::atomic<int> ended{0};
  {
    Queue queue(1);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 20; ++i) {
        queue.Post([&] {
          Pollers::StepAside();
          ++aside;
          Block(release);
          Pollers::StepAside();  // does nothing: it polls no more
          ++ended;
        });
      }
      CHECK(Await([&] { return aside == 20 * (round + 1); }));
      std::atomic<bool> handled{false};
      queue.Post([&] { handled = true; });
      CHECK(Await([&] { return handled.load(); }));
      release = true;
      CHECK(Await([&] { return ended == 20 * (round + 1); }));
      release = false;
    }
    CHECK(queue.most_polling() == 1);
  }
}

TEST_CASE("A handler that takes long without stepping aside is relieved, also with one thread") {
  std::atomic<bool> release{false};
  std::atomic<int> blocked{0};
  std::atomic<int> handled{0};
  Queue queue(1);
  for (int i = 0; i < 3; ++i) {
    queue.Post([&] {
      ++blocked;
      Block(release);
      Pollers::StepAside();
    });
    queue.Post([&] { ++handled; });
  }
  CHECK(Await([&] { return handled == 3; }));
  CHECK(blocked == 3);
  CHECK(queue.most_polling() == 1);
  release = true;
}

TEST_CASE("Handlers beyond the most threads wait until one ends") {
  std::atomic<bool> release{false};
  std::atomic<size_t> begun{0};
  Queue queue(2);
  constexpr size_t kHandlers = Pollers::kMaxThreads + 10;
  for (size_t i = 0; i < kHandlers; ++i) {
    queue.Post([&] {
      Pollers::StepAside();
      ++begun;
      Block(release);
    });
  }
  CHECK(Await([&] { return begun == Pollers::kMaxThreads; }));
  release = true;
  CHECK(Await([&] { return begun == kHandlers; }));
}

TEST_CASE("What is not a poller's thread may step aside, too") { Pollers::StepAside(); }

}  // namespace
}  // namespace paramd
