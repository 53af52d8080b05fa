#include "client/exchange_under_way.h"

namespace paramd {

Vector Vector::Own(size_t floats) {
  auto own = std::make_unique<float[]>(floats);
  const absl::Span<float> all(own.get(), floats);
  return {std::move(own), all};
}

Vector Vector::LentOrOwn(absl::Span<float> lent, size_t floats) {
  return lent.size() == floats ? Vector(nullptr, lent) : Own(floats);
}

ExchangeThread::~ExchangeThread() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.Signal();
  }
  thread_.join();
}

std::future<absl::StatusOr<Exchanged>> ExchangeThread::Run(std::function<absl::StatusOr<Exchanged>()> call) {
  Call task(std::move(call));
  std::future<absl::StatusOr<Exchanged>> answer = task.get_future();
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  MutexLock lock(&mutex_);
  next_ = std::move(task);
  changed_.Signal();
  return answer;
}

void ExchangeThread::Work() {
  for (;;) {
    Call call;
    {
      MutexLock lock(&mutex_);
      while (!next_.valid() && !stop_) changed_.Wait(&mutex_);
      if (!next_.valid()) return;
      call = std::exchange(next_, Call());
    }
    call();
  }
}

}  // namespace paramd
