// Bad networks.
#ifndef PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_
#define PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_

#include <cstddef>
#include <limits>
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

// Passes bytes between its clients and a server on 127.0.0.1, until told otherwise. It writes in one thread, without
// regard to whether the other side reads: a peer that is stopped holds up all connections. Thread-safe.
class TcpProxy {
 public:
  explicit TcpProxy(const std::string& server);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& address() const { return address_; }

  // Where new connections lead to from now on.
  void SetServer(const std::string& server);

  // Keeps what the server, or what clients, send from now on, on every connection.
  void HoldReplies();
  void HoldRequests();

  // Passes everything again, what was kept first.
  void Release();

  // Closes every connection, with what was kept of it. New ones pass everything again.
  void Cut();

  // Does so once that many bytes more have passed, wherever in a message that is.
  void CutAfter(size_t bytes);

 private:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  struct Pair {
    int client = -1;
    int server = -1;
  };

  void Run();
  bool Pass(int from, int to);
  void Wake() const;
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  int listener_ = -1;
  int wake_ = -1;
  std::string address_;
  std::thread thread_;

  Mutex mutex_;
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  int server_port_ ABSL_GUARDED_BY(mutex_);
  bool holding_replies_ ABSL_GUARDED_BY(mutex_) = false;
  bool holding_requests_ ABSL_GUARDED_BY(mutex_) = false;
  size_t left_ ABSL_GUARDED_BY(mutex_) = kUnlimited;  // bytes until a cut
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paramd

#endif  // PARAMD_TESTS_INTEGRATION_TCP_PROXY_H_
