// How many files a process may have open.
#ifndef PARAMD_PROCESS_DESCRIPTORS_H_
#define PARAMD_PROCESS_DESCRIPTORS_H_

#include <sys/resource.h>

#include <algorithm>
#include <climits>

namespace paramd {

// That are left to files, and to libraries, when connections have all others.
inline constexpr int kSpareDescriptors = 24;

// Numbers of descriptors are below. It may change while the process runs (prlimit).
inline int DescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return INT_MAX;
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, INT_MAX));
}

// As far as the system lets it.
inline void RaiseDescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace paramd

#endif  // PARAMD_PROCESS_DESCRIPTORS_H_
