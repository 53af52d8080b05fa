#include "bench/baseline_tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "security/authority.h"
#include "sync/mutex.h"

namespace paramd::bench {
namespace {

// See baseline_socket.cc.
constexpr size_t kTlsPieceBytes = 64 << 10;
constexpr size_t kMaxAhead = size_t{8} << 20;

absl::Status TlsError(const char* what) {
  const std::string why = ERR_error_string(ERR_get_error(), nullptr);
  ERR_clear_error();
  return absl::UnavailableError(absl::StrCat(what, ": ", why));
}

// One end of a connection. Thread-compatible.
class TlsLink {
 public:
  TlsLink(int fd, SSL_CTX* context) : fd_(fd), ssl_(SSL_new(context)) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    SSL_set_fd(ssl_, fd);
    SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  }
  ~TlsLink() {
    SSL_free(ssl_);
    close(fd_);
  }
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;

  bool Accept() { return SSL_accept(ssl_) == 1; }
  bool Connect() { return SSL_connect(ssl_) == 1; }
  // From here on calls do not block.
  void DontBlock() {
    int on = 1;
    ioctl(fd_, FIONBIO, &on);
  }

  // What went at once, 0 if nothing can at the moment; negative: the connection broke.
  int64_t Send(const char* data, size_t bytes) {
    return Done(SSL_write(ssl_, data, static_cast<int>(std::min(bytes, kTlsPieceBytes))));
  }
  int64_t Receive(char* data, size_t bytes) {
    return Done(SSL_read(ssl_, data, static_cast<int>(std::min(bytes, size_t{1} << 30))));
  }
  bool Wait(int16_t events) {
    pollfd ready = {fd_, events, 0};
    return poll(&ready, 1, -1) > 0;
  }

  bool SendAll(const char* data, size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
      const int64_t n = Send(data + sent, bytes - sent);
      if (n < 0 || (n == 0 && !Wait(POLLOUT))) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  bool ReceiveAll(char* data, size_t bytes) {
    for (size_t received = 0; received < bytes;) {
      const int64_t n = Receive(data + received, bytes - received);
      if (n < 0 || (n == 0 && !Wait(POLLIN))) return false;
      received += static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int64_t Done(int result) const {
    if (result > 0) return result;
    const int error = SSL_get_error(ssl_, result);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
  }

  const int fd_;
  SSL* const ssl_;
};

class TlsCenter {
 public:
  explicit TlsCenter(size_t bytes) : floats_(bytes / sizeof(float)) {}

  bool Serve(TlsLink* link, Operation operation) {
    const size_t total = floats_.size() * sizeof(float);
    char* const center = reinterpret_cast<char*>(floats_.data());
    if (operation == Operation::kPull) return link->SendAll(center, total);
    thread_local std::vector<float> piece(kTlsPieceBytes / sizeof(float));
    for (size_t begin = 0; begin < total; begin += kTlsPieceBytes) {
      const size_t bytes = std::min(kTlsPieceBytes, total - begin);
      if (!link->ReceiveAll(reinterpret_cast<char*>(piece.data()), bytes)) return false;
      {
        MutexLock lock(&mutex_);
        float* const to = floats_.data() + begin / sizeof(float);
        for (size_t i = 0; i < bytes / sizeof(float); ++i) to[i] += piece[i];
      }
      if (operation == Operation::kExchange && !link->SendAll(center + begin, bytes)) return false;
    }
    const auto answer = static_cast<char>(operation);
    return operation == Operation::kExchange || link->SendAll(&answer, 1);
  }

 private:
  Mutex mutex_;
  std::vector<float> floats_;  // written under the lock; sent without it
};

class TlsPeer : public Peer {
 public:
  TlsPeer(std::unique_ptr<TlsLink> link, Buffers buffers) : link_(std::move(link)), buffers_(buffers) {}

  absl::Status Run(Operation operation) override {
    const size_t bytes = buffers_.update.size() * sizeof(float);
    const char* const from = reinterpret_cast<const char*>(buffers_.update.data());
    char* const to = reinterpret_cast<char*>(buffers_.center.data());
    auto answer = static_cast<char>(operation);
    bool done = link_->SendAll(&answer, 1);
    if (operation == Operation::kPull) {
      done = done && link_->ReceiveAll(to, bytes);
    } else if (operation == Operation::kCommit) {
      done = done && link_->SendAll(from, bytes) && link_->ReceiveAll(&answer, 1);
    } else {
      done = done && SendAndReceive(from, to, bytes);
    }
    return done ? absl::OkStatus() : TlsError("the connection broke");
  }

 private:
  // Both directions on one thread.
  bool SendAndReceive(const char* from, char* to, size_t bytes) {
    size_t sent = 0;
    size_t received = 0;
    while (received < bytes) {
      const bool sends = sent < bytes && sent < received + kMaxAhead;
      const int64_t out = sends ? link_->Send(from + sent, bytes - sent) : 0;
      const int64_t in = link_->Receive(to + received, bytes - received);
      if (out < 0 || in < 0) return false;
      sent += static_cast<size_t>(out);
      received += static_cast<size_t>(in);
      if (out == 0 && in == 0 && !link_->Wait(sends ? POLLIN | POLLOUT : POLLIN)) return false;
    }
    return true;
  }

  const std::unique_ptr<TlsLink> link_;
  const Buffers buffers_;
};

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// With a new certificate.
absl::StatusOr<SSL_CTX*> MakeServerContext() {
  const auto authority = Authority::Create("benchmark", absl::Hours(24));
  if (!authority.ok()) return authority.status();
  const auto made = (*authority)->Certify("benchmark", {"127.0.0.1"}, absl::Hours(24));
  if (!made.ok()) return made.status();
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  BIO* const certificate = BIO_new_mem_buf(made->certificate.data(), static_cast<int>(made->certificate.size()));
  BIO* const key = BIO_new_mem_buf(made->key.data(), static_cast<int>(made->key.size()));
  if (SSL_CTX_use_certificate(context, PEM_read_bio_X509(certificate, nullptr, nullptr, nullptr)) != 1 ||
      SSL_CTX_use_PrivateKey(context, PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr)) != 1) {
    return TlsError("the certificate can't be used");
  }
  return context;
}

}  // namespace

absl::Status ServeTls(size_t bytes) {
  const auto context = MakeServerContext();
  if (!context.ok()) return context.status();
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, SOMAXCONN) != 0 || getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::ErrnoToStatus(errno, "can't listen");
  }
  TlsCenter center(bytes);
  std::cout << "listens on 127.0.0.1:" << ntohs(address.sin_port) << std::endl;
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, "accept");
    std::thread([fd, context = *context, &center] {
      TlsLink link(fd, context);
      char request = 0;
      bool serves = link.Accept();
      while (serves && link.ReceiveAll(&request, 1)) serves = center.Serve(&link, static_cast<Operation>(request));
    }).detach();
  }
}

absl::StatusOr<std::unique_ptr<Peer>> ConnectTlsPeer(const std::string& text, Buffers buffers) {
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not HOST:PORT"));
  }
  static SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  const sockaddr_in address = Loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  auto link = std::make_unique<TlsLink>(fd, context);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, "connect");
  }
  if (!link->Connect()) return TlsError("no TLS there");
  link->DontBlock();
  return std::make_unique<TlsPeer>(std::move(link), buffers);
}

}  // namespace paramd::bench
