#include "client/wire_flags.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace paramd {
namespace {

template <typename Value>
void CheckNames(const std::vector<std::pair<std::string, Value>>& names) {
  for (const auto& [name, value] : names) {
    INFO(name);
    Value parsed = names.front().second == value ? names.back().second : names.front().second;
    std::string error;
    CHECK(AbslParseFlag(name, &parsed, &error));
    CHECK(parsed == value);
    CHECK(AbslUnparseFlag(value) == name);
  }
}

template <typename Value>
void CheckRefused(const std::string& name, Value value, const std::string& expected) {
  INFO(name);
  const Value before = value;
  std::string error;
  CHECK_FALSE(AbslParseFlag(name, &value, &error));
  CHECK(value == before);
  CHECK(error == expected);
}

TEST_CASE("transports and encodings have the names that flags give them") {
  CheckNames<Transport>({{"auto", Transport::kAuto}, {"grpc", Transport::kGrpc}, {"shm", Transport::kShm}});
  CheckNames<Wire>({{"f32", Wire::kFloat32}, {"f16", Wire::kFloat16}, {"bf16", Wire::kBfloat16}});
}

TEST_CASE("other names are refused with those that are known") {
  for (const std::string name : {"", "tcp", "GRPC", "shm "}) {
    CheckRefused(name, Transport::kShm, "use auto, grpc or shm");
  }
  for (const std::string name : {"", "f64", "float16", "F16"}) {
    CheckRefused(name, Wire::kBfloat16, "use f32, f16 or bf16");
  }
}

}  // namespace
}  // namespace paramd
