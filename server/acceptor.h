// Who gets a connection. gRPC's own listener ends, without a word, with the first connection that there is no
// descriptor for, and knows no bounds.
#ifndef PARAMD_SERVER_ACCEPTOR_H_
#define PARAMD_SERVER_ACCEPTOR_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/listening.h"
#include "shm/file_descriptor.h"
#include "sync/mutex.h"

namespace paramd {

struct AcceptorOptions {
  size_t max_connections = 0;           // 0: as many as the limit on open files carries
  size_t max_connections_per_peer = 0;  // 0: three quarters of that limit, and for this host all of it
  // Told when connections begin to be refused, once, and when that is over. On the acceptor's thread; may be null.
  std::function<void(const std::string& line)> log;
};

// Accepts connections on a thread of its own. One too many is closed at once: its client sees that, and tries again. A
// peer is an IPv4 address, an IPv6 network of 64 bits, or a user at a unix socket. Thread-safe.
class Acceptor {
 public:
  // Gets each accepted connection, and closes it in the end.
  using Take = std::function<void(int listener, int connection)>;

  // RESOURCE_EXHAUSTED if a process that has used so many of the files that it may open has none left for connections.
  static absl::Status CheckLimit(int used);

  // RESOURCE_EXHAUSTED as above.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(Listeners listeners, AcceptorOptions options, Take take);
  ~Acceptor();

  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Closes the listeners, and returns when there will be no further connection. To be called once at most.
  void Stop();

  // That are open.
  size_t connections();
  size_t refused() const;

 private:
  struct Held {
    ino_t inode = 0;  // of the socket: its descriptor's number may be another file's by now
    std::string peer;
  };

  Acceptor(Listeners listeners, AcceptorOptions options, Take take, FileDescriptor stop);
  void Run();
  void AcceptOne(int listener);
  // Why a connection is one too many; empty: it is not.
  std::string ProblemLocked(int connection, const std::string& peer, bool local) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Connections of a peer, though some may be closed.
  size_t OfPeerLocked(const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HoldLocked(int connection, const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetLocked(std::map<int, Held>::iterator held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets those that were closed.
  void LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refused(const std::string& why);

  const AcceptorOptions options_;
  const Take take_;
  const FileDescriptor stop_;

  // The thread's.
  Listeners listeners_;
  absl::Time accept_after_ = absl::InfinitePast();
  absl::Time last_look_ = absl::InfinitePast();
  absl::Time last_refusal_ = absl::InfinitePast();
  size_t refused_now_ = 0;  // since it last was told that none is

  mutable Mutex mutex_;
  std::map<int, Held> held_ ABSL_GUARDED_BY(mutex_);  // by descriptor; some may be closed
  std::map<std::string, size_t> of_peers_ ABSL_GUARDED_BY(mutex_);
  size_t refused_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

}  // namespace paramd

#endif  // PARAMD_SERVER_ACCEPTOR_H_
