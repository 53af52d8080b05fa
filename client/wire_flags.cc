#include "client/wire_flags.h"

#include <utility>

namespace paramd {
namespace {

constexpr std::pair<absl::string_view, Transport> kTransports[] = {
    {"auto", Transport::kAuto}, {"grpc", Transport::kGrpc}, {"shm", Transport::kShm}};
constexpr std::pair<absl::string_view, Wire> kWires[] = {
    {"f32", Wire::kFloat32}, {"f16", Wire::kFloat16}, {"bf16", Wire::kBfloat16}};

template <typename Value, size_t n>
bool Find(const std::pair<absl::string_view, Value> (&names)[n], absl::string_view name, Value* value) {
  for (const auto& [known, its_value] : names) {
    if (known != name) continue;
    *value = its_value;
    return true;
  }
  return false;
}

template <typename Value, size_t n>
std::string Name(const std::pair<absl::string_view, Value> (&names)[n], Value value) {
  for (const auto& [name, its_value] : names) {
    if (its_value == value) return std::string(name);
  }
  return "";
}

}  // namespace

bool AbslParseFlag(absl::string_view name, Transport* transport, std::string* error) {
  if (Find(kTransports, name, transport)) return true;
  *error = "use auto, grpc or shm";
  return false;
}

std::string AbslUnparseFlag(Transport transport) { return Name(kTransports, transport); }

bool AbslParseFlag(absl::string_view name, Wire* wire, std::string* error) {
  if (Find(kWires, name, wire)) return true;
  *error = "use f32, f16 or bf16";
  return false;
}

std::string AbslUnparseFlag(Wire wire) { return Name(kWires, wire); }

}  // namespace paramd
