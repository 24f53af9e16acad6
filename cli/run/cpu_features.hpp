#pragma once
/// The processor that this process runs on.

#include <string>

namespace distattn::cli {

/// The widest instruction set that kernels may use here: "avx512", "avx2", "x86-64", "aarch64", …
std::string cpu_isa();

}  // namespace distattn::cli
