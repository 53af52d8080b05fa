#include "proto/chunk_pool.h"

#include <utility>

#include "proto/encoding.h"

namespace paramd {
namespace {

constexpr size_t kMaxFree = 4;

}  // namespace

struct ChunkPool::Lent {
  std::shared_ptr<ChunkPool> pool;
  Buffer buffer;
};

grpc::Slice ChunkPool::Encode(v1::Encoding encoding, absl::Span<const float> floats) {
  auto lent = std::make_unique<Lent>();
  lent->pool = shared_from_this();
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      lent->buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  const size_t bytes = floats.size() * FloatBytes(encoding);
  // Uninitialized: the encoder writes all of it.
  if (lent->buffer.size < bytes) lent->buffer = {std::unique_ptr<char[]>(new char[bytes]), bytes};
  char* const to = lent->buffer.bytes.get();
  Narrow(encoding, floats.data(), floats.size(), to);
  return grpc::Slice(to, bytes, &ChunkPool::GiveBack, lent.release());
}

void ChunkPool::GiveBack(void* arg) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(arg));
  MutexLock lock(&lent->pool->mutex_);
  if (lent->pool->free_.size() < kMaxFree) lent->pool->free_.push_back(std::move(lent->buffer));
}

}  // namespace paramd
