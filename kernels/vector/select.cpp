#include "kernels/vector/select.hpp"

#include <cmath>
#include <cstdlib>

#include "distattn/error.hpp"

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

/// What whoever asks for products of pairs gets.
std::string speed_of(const InstructionSet& set) {
  if (set.pairs == nullptr) return "";
  const long tenths = std::lround(set.pairs->pair_speed() * 10);
  return ", with " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         " products of bf16 in the time of one of fp32";
}

std::string names(const std::vector<InstructionSet>& sets) {
  std::string all;
  for (const auto& set : sets) all += (all.empty() ? "" : ", ") + set.name;
  return all;
}

Choice choose() {
  const auto sets = instruction_sets();
  const char* wish = std::getenv(variable);
  for (const auto& set : sets) {
    if (wish != nullptr && *wish != '\0') {
      if (set.name != wish) continue;
      if (set.kernels == nullptr) {
        throw Error(ErrorKind::environment, std::string(variable) + "=" + wish + " cannot be used here (" +
                                                set.why_not + "): choose another or unset it");
      }
      return {set, "asked for by " + std::string(variable) + speed_of(set)};
    }
    // Pairs round weights, which costs precision: nobody gets that unasked.
    if (set.kernels != nullptr && set.pairs == nullptr) return {set, "the widest that this processor has"};
  }
  refuse(std::string(variable) + "=" + wish + " is not an instruction set of this build (built: " + names(sets) +
         "): choose one of these or unset it");
}

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
#if defined(__x86_64__)
  const auto add = [&](const char* name, const VectorKernels& kernels, const VectorKernels* pairs,
                       std::string missing) {
    const bool has = missing.empty();
    sets.push_back({name, has ? &kernels : nullptr, has ? pairs : nullptr, std::move(missing)});
  };
  add("avx512_bf16", isa_avx512::vector_kernels, &isa_avx512_bf16::vector_kernels, missing_avx512_bf16());
  add("avx512", isa_avx512::vector_kernels, nullptr, missing_avx512());
  add("avx2", isa_avx2::vector_kernels, nullptr, missing_avx2());
#endif
  sets.push_back({"generic", &isa_generic::vector_kernels, nullptr, ""});
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
