// Listening: clear errors, a unix socket that is nobody else's, connections to cut.
#ifndef PARAMD_SERVER_LISTENING_H_
#define PARAMD_SERVER_LISTENING_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/address.h"
#include "shm/file_descriptor.h"

namespace paramd {

// Sockets that listen, and don't block.
struct Listeners {
  std::vector<FileDescriptor> sockets;
  int port = 0;  // 0: not TCP
};

// At all addresses of a TCP address's host, at one port. UNAVAILABLE with the system's reason.
absl::StatusOr<Listeners> Listen(const Address& address);

// The file of a unix socket. It is bound under another name and takes its place only when it listens, which nobody
// else's socket loses: so of several servers that start at once one gets it, and the others are told.
// Thread-compatible.
class SocketFile {
 public:
  // UNAVAILABLE with the reason if the place is taken or can't be.
  static absl::StatusOr<std::unique_ptr<SocketFile>> Prepare(const std::string& path);

  // Removes the file, if it is still the one that was published.
  ~SocketFile();

  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  // Where the socket is bound. Usable for as long as this lives.
  Address bound() const;

  // UNAVAILABLE with the system's reason.
  absl::StatusOr<Listeners> Listen() const;

  // To be called once the socket listens: now it is at its path.
  absl::Status Publish();

 private:
  SocketFile(std::string path, std::string name, int folder);
  // Whether a socket is there that nobody listens on; UNAVAILABLE for anything else that is there.
  absl::StatusOr<bool> LeftOver() const;
  // False with errno, EEXIST if something is there.
  bool Link() const;
  absl::Status Error(const std::string& why, const std::string& next_step) const;

  const std::string path_;
  const std::string name_;       // in its folder
  const std::string temporary_;  // in its folder
  const int folder_;
  bool published_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Ends every connection that this process accepted at that port, or socket, whatever it still had to send.
void CutConnections(const Address& bound);

}  // namespace paramd

#endif  // PARAMD_SERVER_LISTENING_H_
