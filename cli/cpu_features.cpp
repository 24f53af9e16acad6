#include "cpu_features.hpp"

#include <sched.h>

namespace distattn::cli {

std::string cpu_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "generic";
#endif
}

int cpu_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace distattn::cli
