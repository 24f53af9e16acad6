#include "distattn/error.hpp"

#include <cstdio>
#include <cstdlib>

namespace distattn::detail {

void expectation_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "distattn: internal error: expected %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace distattn::detail
