// What every function of the C ABI does around its work. Internal to client/c.
#ifndef PARAMD_CLIENT_C_CALL_H_
#define PARAMD_CLIENT_C_CALL_H_

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/c/paramd.h"

namespace paramd::c {

// The status as a code; if it is an error, its message becomes this thread's.
paramd_code Return(const absl::Status& status) noexcept;

// What `call`, which returns an absl::Status, comes to. No exception leaves it, but the end of a thread by pthread_exit
// in a callback, which nothing may hold up.
template <typename Call>
paramd_code Guard(const Call& call) {
  try {
    return Return(call());
  } catch (const std::bad_alloc&) {
    return Return(absl::Status(absl::StatusCode::kResourceExhausted, "there is no memory for this call"));
  } catch (const std::exception& exception) {
    return Return(absl::Status(absl::StatusCode::kInternal, exception.what()));
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return Return(absl::Status(absl::StatusCode::kInternal, "an exception of unknown type"));
  }
}

// INVALID_ARGUMENT that names the first of the parameters which is null.
struct Given {
  const void* pointer;
  const char* name;
};
absl::Status CheckGiven(std::initializer_list<Given> parameters);

// INVALID_ARGUMENT unless there are `count` names of metrics.
absl::Status CheckNames(const char* const* names, size_t count);

// Negative: infinite. INVALID_ARGUMENT if it is not a number.
absl::StatusOr<absl::Duration> Timeout(double seconds);

// A structure that the caller filled, in the form this library knows: what the caller's is too short for is zero.
// `name` is that of its type. INVALID_ARGUMENT if it is null, has no plausible size, or is longer than this library
// knows and uses that.
template <typename Struct>
absl::StatusOr<Struct> ReadSized(const Struct* given, absl::string_view name) {
  constexpr size_t kImplausible = 4096;
  if (given == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " is null"));
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > kImplausible) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".struct_size is ", size, "; set it to sizeof(", name, "), and the rest to 0 or values"));
  }
  const char* const bytes = reinterpret_cast<const char*>(given);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size, [](char byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program uses fields of ", name,
                     " that this libparamd does not know; compare paramd_abi_version() with PARAMD_ABI_VERSION"));
  }
  Struct known{};
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  return known;
}

}  // namespace paramd::c

#endif  // PARAMD_CLIENT_C_CALL_H_
