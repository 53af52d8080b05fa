// Which sessions are sending a center to which worker.
#ifndef PARAMD_SERVER_SENDINGS_H_
#define PARAMD_SERVER_SENDINGS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/membership.h"
#include "sync/mutex.h"

namespace paramd {

// So that what is held for a worker that is gone is released, though its process does not read. Thread-safe.
class Sendings {
 public:
  void Add(uint64_t model_id, const Caller& caller, std::weak_ptr<ExchangeOwner> owner) {
    MutexLock lock(&mutex_);
    owners_.emplace(Key(model_id, caller.worker, caller.incarnation), std::move(owner));
  }

  // To be called once for each that was added, when it is destroyed.
  void Remove(uint64_t model_id, const Caller& caller) {
    MutexLock lock(&mutex_);
    const auto [begin, end] = owners_.equal_range(Key(model_id, caller.worker, caller.incarnation));
    const auto ended = std::find_if(begin, end, [](const auto& owner) { return owner.second.expired(); });
    if (ended != end) owners_.erase(ended);
  }

  // Tells those that send to it; without a worker's name, those that send to any of the model's.
  void Gone(uint64_t model_id, const std::string& worker, uint64_t incarnation, const absl::Status& why) {
    std::vector<std::shared_ptr<ExchangeOwner>> gone;
    {
      MutexLock lock(&mutex_);
      for (auto it = owners_.lower_bound(Key(model_id, worker, incarnation)); it != owners_.end(); ++it) {
        const auto& [of_model, of_worker, of_incarnation] = it->first;
        if (of_model != model_id) break;
        if (!worker.empty() && (of_worker != worker || of_incarnation != incarnation)) break;
        gone.push_back(it->second.lock());
      }
    }
    for (const auto& owner : gone) {
      if (owner != nullptr) owner->OnGone(why);
    }
  }

 private:
  using Key = std::tuple<uint64_t, std::string, uint64_t>;

  Mutex mutex_;
  std::multimap<Key, std::weak_ptr<ExchangeOwner>> owners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SERVER_SENDINGS_H_
