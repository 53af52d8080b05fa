#include "server/block.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace paramd {
namespace {

constexpr size_t kBlockBytes = kBlockFloats * sizeof(float);

TEST_CASE("A block has the floats asked for, aligned for vector instructions") {
  const auto pool = BlockPool::Create(0);
  for (const size_t floats : {size_t{1}, size_t{15}, size_t{17}, kBlockFloats - 1, kBlockFloats}) {
    INFO(floats);
    BlockRef block = pool->Allocate(floats);
    CHECK(block.floats().size() == floats);
    CHECK(block.mutable_floats().data() == block.floats().data());
    CHECK(reinterpret_cast<uintptr_t>(block.floats().data()) % 64 == 0);
    std::fill(block.mutable_floats().begin(), block.mutable_floats().end(), 1.0f);
    CHECK(block.floats().back() == 1.0f);
  }
}

TEST_CASE("Copies of a handle share its block, and a block is unique while one handle is left") {
  const auto pool = BlockPool::Create(0);
  BlockRef a = pool->Allocate(4);
  CHECK(a.unique());
  {
    const BlockRef b = a;
    CHECK_FALSE(a.unique());
    CHECK(b.floats().data() == a.floats().data());
  }
  CHECK(a.unique());
  BlockRef c = std::move(a);
  CHECK(c.unique());
  BlockRef d;
  d = c;
  CHECK_FALSE(c.unique());
  d = pool->Allocate(4);
  CHECK(c.unique());
  const BlockRef& itself = c;
  c = itself;
  CHECK(c.unique());
  CHECK(c.floats().size() == 4);
}

TEST_CASE("The pool counts the bytes that are handed out, once for a shared block") {
  const auto pool = BlockPool::Create(4 * kBlockBytes);
  CHECK(pool->allocated_bytes() == 0);
  {
    const BlockRef a = pool->Allocate(kBlockFloats);
    const BlockRef shared = a;
    const BlockRef b = pool->Allocate(10);
    CHECK(pool->allocated_bytes() == kBlockBytes + 40);
  }
  CHECK(pool->allocated_bytes() == 0);
}

TEST_CASE("A freed whole block is handed out again, as many as the pool may retain") {
  const auto pool = BlockPool::Create(kBlockBytes);
  const float* first = nullptr;
  {
    const BlockRef a = pool->Allocate(kBlockFloats);
    const BlockRef b = pool->Allocate(kBlockFloats);
    first = b.floats().data();
  }
  const BlockRef again = pool->Allocate(kBlockFloats);
  CHECK(again.floats().data() == first);  // b was freed before a, so it is the one retained
  CHECK(again.unique());
}

TEST_CASE("A block outlives the owner's reference to its pool") {
  BlockRef block;
  {
    const auto pool = BlockPool::Create(kBlockBytes);
    block = pool->Allocate(kBlockFloats);
  }
  block.mutable_floats()[0] = 3;
  CHECK(block.floats()[0] == 3);
}

TEST_CASE("Handles of one block may be copied and dropped by many threads") {
  const auto pool = BlockPool::Create(kBlockBytes);
  BlockRef block = pool->Allocate(kBlockFloats);
  block.mutable_floats()[0] = 7;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([mine = block, pool, &wrong, t] {
      for (int i = 0; i < 1000; ++i) {
        const BlockRef copy = mine;
        if (copy.floats()[0] != 7 || copy.unique()) ++wrong[t];
        const BlockRef other = pool->Allocate(kBlockFloats);
        if (!other.unique()) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  threads.clear();
  CHECK(block.unique());
  CHECK(pool->allocated_bytes() == kBlockBytes);
}

}  // namespace
}  // namespace paramd
