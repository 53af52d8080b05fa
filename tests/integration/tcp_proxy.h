// Bad networks.
#ifndef PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_
#define PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sync/mutex.h"

namespace paramd {

// A port on which connections come about, and nothing is ever said. Thread-compatible.
class SilentListener {
 public:
  SilentListener();
  ~SilentListener();
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  const std::string& address() const { return address_; }

 private:
  std::string address_;
  const int fd_;
};

// Passes bytes between its clients and a server on 127.0.0.1, until told otherwise. Only for small messages: it writes
// in one thread, without regard to whether the other side reads. Thread-safe.
class TcpProxy {
 public:
  explicit TcpProxy(const std::string& server);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& address() const { return address_; }

  // Keeps what the server sends from now on, on every connection.
  void HoldReplies();

  // Closes every connection, with what was kept of it. New ones pass everything again.
  void Cut();

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  void Run();
  void Wake() const;
  void CloseAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const int server_port_;
  int listener_ = -1;
  int wake_ = -1;
  std::string address_;
  std::thread thread_;

  Mutex mutex_;
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_
