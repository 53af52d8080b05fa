// A plugin as headers of the next interface version would build it. Its Algorithm must never be made.
#include <cstdlib>

#include "algorithms/registry.h"

static const paramd::registry_internal::Registration kRegistration(
    paramd::kAlgorithmInterfaceVersion + 1, +[]() -> paramd::Algorithm { std::abort(); });
