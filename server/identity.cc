#include "server/identity.h"

#include <random>

namespace paramd {

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

}  // namespace paramd
