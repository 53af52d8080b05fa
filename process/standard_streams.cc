// For programs, which only need to link it: descriptors 0 to 2 are nobody else's.
#include <fcntl.h>
#include <unistd.h>

namespace paramd {
namespace {

// Whichever of standard input, output and error the process was started without (`<&-`) gets a descriptor that can't be
// used, so that no socket takes its number and gets what is written for people. Before main, as gRPC opens some then.
__attribute__((constructor(101))) void FillStandardStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest that is free: those below are taken by now.
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) _exit(1);
  }
}

}  // namespace
}  // namespace paramd
