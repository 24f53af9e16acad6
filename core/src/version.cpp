#include "distattn/version.hpp"

#include "commit.hpp"

namespace distattn {

const char* version() { return DISTATTN_VERSION; }

const char* commit() { return DISTATTN_COMMIT; }

}  // namespace distattn
