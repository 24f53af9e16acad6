#include "kernels/vector/select.hpp"

#include <cmath>
#include <cstdlib>

#include "distattn/error.hpp"
#include "kernels/tile_permission.hpp"

namespace distattn::kernels::vector {

namespace {

constexpr const char* variable = "DISTATTN_ISA";

#if defined(__x86_64__)
// Also asks whether the operating system keeps the registers.
std::string missing_avx512() {
  __builtin_cpu_init();
  const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl");
  return has ? "" : "this processor lacks AVX-512 (F, BW, CD, DQ, VL)";
}

std::string missing_avx512_bf16() {
  const std::string missing = missing_avx512();
  if (!missing.empty()) return missing;
  return __builtin_cpu_supports("avx512bf16") ? "" : "this processor lacks AVX512-BF16";
}

std::string missing_amx() {
  const std::string& missing = missing_tiles();  // first: processors that have tiles have the rest
  return missing.empty() ? missing_avx512_bf16() : missing;
}

std::string missing_avx2() {
  __builtin_cpu_init();
  const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                   __builtin_cpu_supports("bmi2");
  return has ? "" : "this processor lacks AVX2 or FMA";
}
#endif

struct Choice {
  InstructionSet set;
  std::string reason;
};

/// Products of bf16 in the time of one of fp32 from which on pairs are worth the rounding of weights that they cost.
constexpr double least_pair_speed = 1.3;

std::string pair_speed_text(double speed) {
  const long tenths = std::lround(speed * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         " products of bf16 in the time of one of fp32";
}

constexpr const char* left_out = "this build left it out by DISTATTN_CPU_KERNELS=NATIVE";

/// Of those that are built.
std::string names(const std::vector<InstructionSet>& sets) {
  std::string all;
  for (const auto& set : sets) {
    if (set.why_not != left_out) all += (all.empty() ? "" : ", ") + set.name;
  }
  return all;
}

Choice wished(const std::vector<InstructionSet>& sets, const std::string& wish) {
  for (const auto& set : sets) {
    if (set.name != wish) continue;
    if (set.kernels == nullptr) {
      throw Error(ErrorKind::environment, std::string(variable) + "=" + wish + " cannot be used here (" + set.why_not +
                                              "): choose another or unset it");
    }
    const std::string with = set.pairs == nullptr ? "" : ", with " + pair_speed_text(set.pairs->pair_speed());
    return {set, "asked for by " + std::string(variable) + with};
  }
  refuse(std::string(variable) + "=" + wish + " is not an instruction set of this build (built: " + names(sets) +
         "): choose one of these or unset it");
}

/// The widest; products of pairs only where they are fast.
Choice widest(const std::vector<InstructionSet>& sets) {
  const std::string reason = "the widest that this processor has";
  std::string passed_over;
  for (const auto& set : sets) {
    if (set.kernels == nullptr) continue;
    if (set.pairs == nullptr) return {set, reason + passed_over};
    const double speed = set.pairs->pair_speed();
    if (speed >= least_pair_speed) return {set, reason + ", with " + pair_speed_text(speed)};
    passed_over = " but for " + set.name + ", which has " + pair_speed_text(speed);
  }
  if (sets.back().kernels == nullptr) {
    throw Error(ErrorKind::environment,
                "CPU kernels cannot run here (built by DISTATTN_CPU_KERNELS=NATIVE for others: " + names(sets) +
                    "): build with DISTATTN_CPU_KERNELS=ALL");
  }
  return {sets.back(), reason + passed_over};
}

Choice choose() {
  const auto sets = instruction_sets();
  const char* wish = std::getenv(variable);
  return wish != nullptr && *wish != '\0' ? wished(sets, wish) : widest(sets);
}

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  const auto add = [&](const char* name, const VectorKernels& kernels, const VectorKernels* pairs,
                       std::string missing) {
    const VectorKernels& own = pairs != nullptr ? *pairs : kernels;
    if (own.attend_pass == nullptr) missing = left_out;
    const bool has = missing.empty();
    sets.push_back({name, has ? &kernels : nullptr, has ? pairs : nullptr, std::move(missing)});
  };
#if defined(__x86_64__)
  add("amx", isa_avx512::vector_kernels, &isa_amx::vector_kernels, missing_amx());
  add("avx512_bf16", isa_avx512::vector_kernels, &isa_avx512_bf16::vector_kernels, missing_avx512_bf16());
  add("avx512", isa_avx512::vector_kernels, nullptr, missing_avx512());
  add("avx2", isa_avx2::vector_kernels, nullptr, missing_avx2());
#endif
  add("generic", isa_generic::vector_kernels, nullptr, "");
  return sets;
}

const VectorKernels& vector_kernels() { return *choice().set.kernels; }

bool multiplies_pairs(DType dtype) { return dtype == DType::bf16 && choice().set.pairs != nullptr; }

const VectorKernels& vector_kernels(DType dtype) {
  return multiplies_pairs(dtype) ? *choice().set.pairs : *choice().set.kernels;
}

std::string isa_report() {
  return choice().set.name + " (" + choice().reason + "; built: " + names(instruction_sets()) + ")";
}

}  // namespace distattn::kernels::vector
