// Reference-counted blocks of floats, from a pool.
#ifndef PARAMD_SERVER_BLOCK_H_
#define PARAMD_SERVER_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "sync/mutex.h"

namespace paramd {

inline constexpr size_t kBlockFloats = size_t{256} << 10;  // 1 MiB

class BlockPool;

// A handle to a block: copying it shares the block. The floats may be written only while unique() holds and nobody can
// copy the handle meanwhile. Thread-compatible; distinct handles of one block may be used from different threads.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) block_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  bool unique() const { return block_->refs.load(std::memory_order_acquire) == 1; }
  absl::Span<const float> floats() const { return {block_->data, block_->size}; }
  absl::Span<float> mutable_floats() { return {block_->data, block_->size}; }

 private:
  friend class BlockPool;
  struct Block {
    std::atomic<int> refs{1};
    void* memory = nullptr;  // as malloc gave it
    float* data = nullptr;   // aligned
    size_t size = 0;
    std::shared_ptr<BlockPool> pool;  // while handed out
  };
  explicit BlockRef(Block* block) : block_(block) {}

  Block* block_ = nullptr;
};

// Keeps freed blocks, because the page faults of fresh memory cost more than copies. Blocks may outlive the owner's
// reference to the pool. Thread-safe.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Keeps at most `retained_bytes` of free blocks.
  static std::shared_ptr<BlockPool> Create(size_t retained_bytes);
  ~BlockPool();

  // A block of `floats` <= kBlockFloats, of undefined content.
  BlockRef Allocate(size_t floats);

  // Bytes of all blocks that are handed out.
  size_t allocated_bytes() const { return allocated_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class BlockRef;
  explicit BlockPool(size_t retained_bytes) : max_free_(retained_bytes / (kBlockFloats * sizeof(float))) {}
  void Free(BlockRef::Block* block);

  const size_t max_free_;
  std::atomic<size_t> allocated_bytes_{0};
  Mutex mutex_;
  std::vector<BlockRef::Block*> free_ ABSL_GUARDED_BY(mutex_);  // whole blocks only
};

}  // namespace paramd

#endif  // PARAMD_SERVER_BLOCK_H_
