#include "kernels/tile_permission.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace distattn::kernels {

namespace {

std::string ask_for_tiles() {
#if defined(__x86_64__)
  constexpr long request_permission = 0x1023, tile_data = 18;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0 && (d & amx_tile) != 0) {
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0
               ? ""
               : "this process lacks the permission to use AMX, which the kernel of the operating system refused";
  }
#endif
  return "this processor lacks AMX (TILE, BF16)";
}

}  // namespace

const std::string& missing_tiles() {
  static const std::string missing = ask_for_tiles();
  return missing;
}

}  // namespace distattn::kernels
