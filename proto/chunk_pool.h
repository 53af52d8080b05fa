// Buffers for chunks on their way out.
#ifndef PARAMD_PROTO_CHUNK_POOL_H_
#define PARAMD_PROTO_CHUNK_POOL_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "proto/paramd.pb.h"
#include "sync/mutex.h"

namespace paramd {

// Where floats are sent from that can't be sent from where they are: because the transport may hold on to what it sends
// for longer than they stay, or because they travel in another encoding. Reused buffers stay in the cache. Their slices
// may outlive the owner's reference to the pool. Thread-safe.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  static std::shared_ptr<ChunkPool> Create() { return std::shared_ptr<ChunkPool>(new ChunkPool()); }

  // The floats in `encoding`, in a buffer that comes back when the slice is destroyed.
  grpc::Slice Encode(v1::Encoding encoding, absl::Span<const float> floats);

 private:
  struct Buffer {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
  };
  struct Lent;

  ChunkPool() = default;
  static void GiveBack(void* lent);

  Mutex mutex_;
  std::vector<Buffer> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_PROTO_CHUNK_POOL_H_
