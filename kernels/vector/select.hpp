#pragma once
/// Which of the compiled instruction sets this process uses.

#include <string>
#include <vector>

#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector {

/// An instruction set; `kernels` is null where this processor lacks it or this build left it out.
struct InstructionSet {
  std::string name;  ///< "amx", "avx512_bf16", "avx512", "avx2", "generic"
  const VectorKernels* kernels = nullptr;
  const VectorKernels* pairs = nullptr;  ///< of bf16, where an instruction multiplies pairs of it
  std::string why_not;                   ///< what the processor or the build lacks
};

/// Widest first; the last one runs everywhere, if it was built.
std::vector<InstructionSet> instruction_sets();

/// The widest that this processor has, or the one that the environment variable DISTATTN_ISA names: decided once a
/// process. Products of pairs are taken unasked where a trial says that they are fast. Throws Error(usage) when
/// DISTATTN_ISA names one that is unknown, Error(environment) where the processor lacks it, or all that were built.
const VectorKernels& vector_kernels();
/// Those for operands of this type, whose operations have many queries.
const VectorKernels& vector_kernels(DType dtype);
/// Whether those take products of pairs.
bool multiplies_pairs(DType dtype);

/// "avx2 (the widest that this processor has; built: amx, avx512_bf16, avx512, avx2, generic)"
std::string isa_report();

}  // namespace distattn::kernels::vector
