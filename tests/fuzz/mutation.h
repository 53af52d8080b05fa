// Bytes that are nearly right.
#ifndef PARAMD_TESTS_FUZZ_MUTATION_H_
#define PARAMD_TESTS_FUZZ_MUTATION_H_

#include <random>
#include <string>

namespace paramd {

// Changes, inserts, removes, repeats or cuts off some of the bytes.
inline void Mutate(std::mt19937_64* random, std::string* bytes) {
  const auto below = [random](size_t n) { return n == 0 ? 0 : (*random)() % n; };
  // Bytes that mean something in protobuf: lengths, tags, the ends of varints.
  const auto byte = [&] {
    constexpr char kTelling[] = {0, 1, 4, 8, 0x0a, 0x0c, 0x12, 0x7f, '\x80', '\xff'};
    return below(2) == 0 ? kTelling[below(sizeof(kTelling))] : static_cast<char>(below(256));
  };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(bytes->size());
    switch (below(5)) {
      case 0:
        if (!bytes->empty()) (*bytes)[at] = byte();
        break;
      case 1:
        bytes->insert(at, 1, byte());
        break;
      case 2:
        bytes->erase(at, 1 + below(8));
        break;
      case 3:
        bytes->insert(at, bytes->substr(below(bytes->size()), 1 + below(16)));
        break;
      case 4:
        if (below(4) == 0) bytes->resize(at);
        break;
    }
  }
}

}  // namespace paramd

#endif  // PARAMD_TESTS_FUZZ_MUTATION_H_
