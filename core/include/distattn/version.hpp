#pragma once
/// Which distattn this is.

#pragma GCC visibility push(default)
namespace distattn {

/// Version of the library that is loaded, e.g. "0.1.0".
const char* version();

/// Abbreviated commit of the sources it was built from; "unknown" when they were not a git checkout.
const char* commit();

}  // namespace distattn
#pragma GCC visibility pop
