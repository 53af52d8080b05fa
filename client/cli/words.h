// How both views name what a server answers.
#ifndef PARAMD_CLIENT_CLI_WORDS_H_
#define PARAMD_CLIENT_CLI_WORDS_H_

#include <cstdint>
#include <string>

#include "proto/paramd.pb.h"

namespace paramd::cli {

// "live", "left", "expired" or "failed".
std::string StateText(v1::WorkerInfo::State state);

// The first of the last `last` of `records` records; 0: all.
int FirstRecord(int records, int64_t last);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_WORDS_H_
