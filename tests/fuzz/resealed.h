// Checksums that are right: else nothing gets past the first.
#ifndef PARAMD_TESTS_FUZZ_RESEALED_H_
#define PARAMD_TESTS_FUZZ_RESEALED_H_

#include <string>
#include <string_view>

namespace paramd {

// Those of a segment of the log, as far as there are records.
std::string ResealedSegment(std::string_view input);

// Those of a file of tensors, if it has some and its header can be read.
std::string ResealedTensors(std::string_view input);

}  // namespace paramd

#endif  // PARAMD_TESTS_FUZZ_RESEALED_H_
