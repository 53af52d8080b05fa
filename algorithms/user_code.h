// Calls of code that is not ours: algorithms from plugins, models, sources, callbacks. Theirs may throw.
#ifndef PARAMD_ALGORITHMS_USER_CODE_H_
#define PARAMD_ALGORITHMS_USER_CODE_H_

#include <cxxabi.h>

#include <exception>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace paramd {

// What `call` returns, a Status or StatusOr; INTERNAL with the exception's text if it throws. `where` names the call.
template <typename Call, typename... Where>
auto CallUserCode(const Call& call, const Where&... where) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat("exception in ", where..., ": ", exception.what()));
  } catch (const abi::__forced_unwind&) {
    throw;  // The thread ends in there, by pthread_exit: nothing may hold that up.
  } catch (...) {
    return absl::InternalError(absl::StrCat("exception in ", where..., ", which is no std::exception"));
  }
}

// As CallUserCode, of a call that returns nothing.
template <typename Call, typename... Where>
absl::Status RunUserCode(const Call& call, const Where&... where) {
  return CallUserCode(
      [&] {
        call();
        return absl::OkStatus();
      },
      where...);
}

}  // namespace paramd

#endif  // PARAMD_ALGORITHMS_USER_CODE_H_
