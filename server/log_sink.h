// Where the daemon's log goes.
#ifndef PARAMD_SERVER_LOG_SINK_H_
#define PARAMD_SERVER_LOG_SINK_H_

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "shm/file_descriptor.h"

namespace paramd {

// Standard error, which nobody is made to wait for: lines that it does not take (a pipe that nobody reads, a terminal
// that is stopped, a disk that is full) are kept up to a bound, then dropped and counted. Thread-safe.
class LogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogSink();

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override;

  // Whether all of it was taken; else what is left stays.
  bool Flush(std::string* bytes);
  // What write returns.
  ssize_t WriteSome(std::string_view bytes);

  const FileDescriptor pipe_;  // standard error once more, as one that never waits; invalid where it is no pipe
  std::string kept_;
  uint64_t dropped_ = 0;  // lines
};

}  // namespace paramd

#endif  // PARAMD_SERVER_LOG_SINK_H_
