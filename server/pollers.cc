#include "server/pollers.h"

#include <utility>

#include "server/event.h"

namespace paramd {
namespace {

// Whose queue this thread polls.
thread_local Pollers* polls = nullptr;

}  // namespace

Pollers::Pollers(grpc::ServerCompletionQueue* queue, int threads) : queue_(queue) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Pollers::~Pollers() {
  for (std::thread& thread : threads_) thread.join();
}

void Pollers::StepAside() {
  Pollers* const pollers = std::exchange(polls, nullptr);
  if (pollers == nullptr) return;
  MutexLock lock(&pollers->mutex_);
  pollers->polling_ = false;
  pollers->changed_.Signal();
}

void Pollers::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (polling_ && !over_) changed_.Wait(&mutex_);
      if (over_) return;
      polling_ = true;
    }
    polls = this;
    while (polls != nullptr) {
      void* tag = nullptr;
      bool ok = false;
      if (!queue_->Next(&tag, &ok)) {
        MutexLock lock(&mutex_);
        over_ = true;
        changed_.SignalAll();
        return;
      }
      static_cast<Event*>(tag)->Fire(ok);
    }
  }
}

}  // namespace paramd
