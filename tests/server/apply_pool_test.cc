#include "server/apply_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "sync/mutex.h"

namespace paramd {
namespace {

TEST_CASE("Every piece of work is done once, on any number of threads") {
  ApplyPool pool(GENERATE(1, 2, 5));
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
    std::vector<int> done(n);
    pool.ForEach(n, [&](size_t i) { ++done[i]; });
    CHECK(done == std::vector<int>(n, 1));
  }
}

// Threads that wait for each other.
class Meeting {
 public:
  explicit Meeting(size_t expected) : expected_(expected) {}

  // Returns once all have come, or false after a minute.
  bool Join() {
    MutexLock lock(&mutex_);
    threads_.insert(std::this_thread::get_id());
    changed_.SignalAll();
    while (threads_.size() < expected_) {
      if (changed_.WaitWithTimeout(&mutex_, absl::Minutes(1))) return false;
    }
    return true;
  }

 private:
  const size_t expected_;
  Mutex mutex_;
  CondVar changed_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

TEST_CASE("Work goes on on all threads at once, the caller's among them") {
  ApplyPool pool(3);
  for (int i = 0; i < 20; ++i) {
    Meeting meeting(3);
    std::atomic<int> failed{0};
    pool.ForEach(3, [&](size_t) { failed += !meeting.Join(); });
    REQUIRE(failed == 0);
  }
}

TEST_CASE("While the helpers are busy, another caller does its work alone and at once") {
  ApplyPool pool(2);
  std::set<std::thread::id> seen;
  std::thread::id other;
  // The first piece of work only ends after the other caller's call.
  pool.ForEach(2, [&](size_t i) {
    if (i != 0) return;
    std::thread caller([&] {
      other = std::this_thread::get_id();
      pool.ForEach(100, [&](size_t) { seen.insert(std::this_thread::get_id()); });
    });
    caller.join();
  });
  CHECK(seen == std::set<std::thread::id>{other});
}

TEST_CASE("Many callers at once all get their work done") {
  ApplyPool pool(3);
  constexpr size_t kCallers = 4;
  std::vector<size_t> sums(kCallers);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (size_t n = 0; n < 200; ++n) {
        std::vector<size_t> done(n);
        pool.ForEach(n, [&](size_t i) { done[i] += 1; });
        sums[c] += std::accumulate(done.begin(), done.end(), size_t{0});
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(sums == std::vector<size_t>(kCallers, 199 * 200 / 2));
}

}  // namespace
}  // namespace paramd
