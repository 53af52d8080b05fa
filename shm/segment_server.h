// Hands out segments to the workers on this host.
#ifndef PARAMD_SHM_SEGMENT_SERVER_H_
#define PARAMD_SHM_SEGMENT_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shm/file_descriptor.h"
#include "shm/segment.h"
#include "sync/mutex.h"

namespace paramd {

struct SegmentServerOptions {
  uint64_t max_bytes = 0;                             // of all segments that somebody holds together
  std::function<uint64_t()> max_segment_bytes;        // of one; called on the server's thread
  size_t max_connections = 4096;                      // one a segment, or to be one; and segments held by anybody
  absl::Duration request_timeout = absl::Seconds(5);  // from connecting to having asked
  // A segment that nobody has used for as long since it was given goes if another one needs the room.
  absl::Duration unused_timeout = absl::Seconds(30);
};

// Whose exchanges go through a segment.
struct SegmentUser {
  uint64_t model_id = 0;
  std::string worker;
  uint64_t incarnation = 0;
};

// A quarter of the machine's memory.
uint64_t DefaultMaxSharedBytes();

// Listens on an abstract socket of a random name, on a thread of its own, which never waits for a peer. Only peers of
// the daemon's own user or root get memory. A segment is forgotten when its connection ends, which the system does for
// a process that dies, and when its user is gone, which ends the connection. Thread-safe.
class SegmentServer {
 public:
  // UNAVAILABLE with the system's reason.
  static absl::StatusOr<std::unique_ptr<SegmentServer>> Start(SegmentServerOptions options);
  ~SegmentServer();

  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;

  // Without the zero byte that it begins with.
  const std::string& socket_name() const { return socket_name_; }

  // For an exchange of `user`, who has it from the first time on. Null if there is none. The memory stays for as long
  // as somebody holds it.
  std::shared_ptr<const Segment> Find(uint64_t id, const SegmentUser& user);

  // The worker of that incarnation is gone, or, without a worker, the model: its segments are given up.
  void Release(const SegmentUser& user);

  size_t segments() const;
  // Of all whose memory somebody still holds, though it be a peer whose segment was given up.
  uint64_t bytes() const;

 private:
  class Memory;

  struct Connection {
    FileDescriptor socket;
    absl::Time deadline;   // to have asked; infinite once it has
    uint64_t segment = 0;  // 0: has not asked yet
  };

  struct Granted {
    std::shared_ptr<const Segment> segment;
    int socket = -1;  // the connection's, which is open for as long as this is known
    absl::Time since;
    bool used = false;
    SegmentUser user;  // once used
  };

  explicit SegmentServer(SegmentServerOptions options);
  absl::Status Listen();
  void Run();
  void Accept();
  // What a peer sent, or its end; false if the connection is to be closed.
  bool Handle(Connection* connection);
  absl::Status Grant(uint64_t bytes, Connection* connection);
  void Forget(const Connection& connection);
  // Gives up those of which `over` holds.
  template <typename Over>
  void GiveUp(const Over& over);

  // Constant after Start.
  const SegmentServerOptions options_;
  std::string socket_name_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // readable: the thread is to end
  std::thread thread_;

  // Self-synchronized. The segments tell it of their end, which may come after the server's.
  const std::shared_ptr<Memory> memory_;

  // Of the thread.
  std::list<Connection> connections_;
  absl::Time accept_after_ = absl::InfinitePast();

  mutable Mutex mutex_;
  std::map<uint64_t, Granted> segments_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paramd

#endif  // PARAMD_SHM_SEGMENT_SERVER_H_
