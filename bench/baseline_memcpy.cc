#include "bench/baseline_memcpy.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paramd::bench {
namespace {

class WarmPeer : public Peer {
 public:
  explicit WarmPeer(Buffers buffers) : buffers_(buffers), center_(buffers.center.size()) {}

  absl::Status Run(Operation operation) override {
    const size_t bytes = center_.size() * sizeof(float);
    if (Commits(operation)) std::memcpy(center_.data(), buffers_.update.data(), bytes);
    if (Pulls(operation)) std::memcpy(buffers_.center.data(), center_.data(), bytes);
    return absl::OkStatus();
  }

 private:
  const Buffers buffers_;
  std::vector<float> center_;
};

class FreshPeer : public Peer {
 public:
  explicit FreshPeer(Buffers buffers) : buffers_(buffers) {}

  absl::Status Run(Operation operation) override {
    for (int copies = Pulls(operation) + Commits(operation); copies > 0; --copies) {
      const size_t bytes = buffers_.update.size() * sizeof(float);
      void* const fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fresh == MAP_FAILED) return absl::ResourceExhaustedError(absl::StrCat("mmap: ", strerror(errno)));
      std::memcpy(fresh, buffers_.update.data(), bytes);
      munmap(fresh, bytes);
    }
    return absl::OkStatus();
  }

 private:
  const Buffers buffers_;
};

}  // namespace

std::unique_ptr<Peer> MakeMemcpyPeer(Buffers buffers, bool fresh_pages) {
  if (fresh_pages) return std::make_unique<FreshPeer>(buffers);
  return std::make_unique<WarmPeer>(buffers);
}

}  // namespace paramd::bench
