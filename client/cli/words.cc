#include "client/cli/words.h"

namespace paramd::cli {

std::string StateText(v1::WorkerInfo::State state) {
  switch (state) {
    case v1::WorkerInfo::LIVE:
      return "live";
    case v1::WorkerInfo::LEFT:
      return "left";
    case v1::WorkerInfo::EXPIRED:
      return "expired";
    case v1::WorkerInfo::FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

int FirstRecord(int records, int64_t last) {
  return last == 0 || last >= records ? 0 : records - static_cast<int>(last);
}

}  // namespace paramd::cli
