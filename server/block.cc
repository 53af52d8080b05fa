#include "server/block.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "process/memory.h"

namespace paramd {
namespace {

constexpr size_t kAlignment = 64;

// With pages of 4 KiB, looking up addresses is a good part of what a large commit takes. Only a hint, which systems
// whose transparent huge pages are set to "madvise" wait for.
void UseHugePages(const void* memory, size_t bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes + kHugePage - 1) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

BlockRef::~BlockRef() {
  if (block_ == nullptr || block_->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The pool must outlive its own Free.
  const std::shared_ptr<BlockPool> pool = std::move(block_->pool);
  pool->Free(block_);
}

std::shared_ptr<BlockPool> BlockPool::Create(size_t retained_bytes) {
  return std::shared_ptr<BlockPool>(new BlockPool(retained_bytes));
}

BlockPool::~BlockPool() {
  for (BlockRef::Block* block : free_) {
    std::free(block->memory);
    delete block;
  }
}

BlockRef BlockPool::Allocate(size_t floats) {
  BlockRef::Block* block = nullptr;
  if (floats == kBlockFloats) {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      block = free_.back();
      free_.pop_back();
    }
  }
  if (block == nullptr) {
    const MemoryReserve::Untouched guard;
    block = new BlockRef::Block;
    block->size = floats;
    block->memory = std::malloc(floats * sizeof(float) + kAlignment);
    if (block->memory == nullptr) {
      delete block;
      throw std::bad_alloc();
    }
    if (floats == kBlockFloats) UseHugePages(block->memory, floats * sizeof(float) + kAlignment);
    block->data = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(block->memory) + kAlignment - 1) / kAlignment *
                                           kAlignment);
  }
  block->refs.store(1, std::memory_order_relaxed);
  block->pool = shared_from_this();
  allocated_bytes_.fetch_add(floats * sizeof(float), std::memory_order_relaxed);
  return BlockRef(block);
}

void BlockPool::Free(BlockRef::Block* block) {
  allocated_bytes_.fetch_sub(block->size * sizeof(float), std::memory_order_relaxed);
  if (block->size == kBlockFloats) {
    MutexLock lock(&mutex_);
    if (free_.size() < max_free_) {
      free_.push_back(block);
      return;
    }
  }
  std::free(block->memory);
  delete block;
}

}  // namespace paramd
