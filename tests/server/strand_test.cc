#include "server/strand.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace paramd::testing {
namespace {

TEST_CASE("An idle strand runs a task at once, on the thread that brings it") {
  Strand strand;
  std::thread::id id;
  strand.Run([&] { id = std::this_thread::get_id(); });
  CHECK(id == std::this_thread::get_id());
}

TEST_CASE("What a task brings runs after it, in order, before the first call returns") {
  Strand strand;
  std::vector<int> order;
  strand.Run([&] {
    strand.Run([&] {
      order.push_back(2);
      strand.Run([&] { order.push_back(4); });
    });
    strand.Run([&] { order.push_back(3); });
    order.push_back(1);
  });
  CHECK(order == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("A task that throws ends its caller's turn, and no other's") {
  Strand strand;
  int ran = 0;
  const auto throwing = [&] {
    strand.Run([&] { ++ran; });
    throw 1;
  };
  CHECK_THROWS_AS(strand.Run(throwing), int);
  strand.Run([&] { ++ran; });
  CHECK(ran == 2);
}

TEST_CASE("Tasks of many threads run one at a time, and all of them") {
  Strand strand;
  constexpr int kThreads = 8;
  constexpr int kTasks = 1000;
  int count = 0;  // guarded by the strand
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) strand.Run([&, owned = std::make_unique<int>(1)] { count += *owned; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  strand.Run([&] { CHECK(count == kThreads * kTasks); });
}

}  // namespace
}  // namespace paramd::testing
