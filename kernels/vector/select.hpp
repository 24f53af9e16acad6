#pragma once
/// Which of the compiled instruction sets this process uses.

#include <string>
#include <vector>

#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector {

/// An instruction set that this build has code for; `kernels` is null where this processor lacks it.
struct InstructionSet {
  std::string name;  ///< "avx512", "avx2", "generic"
  const VectorKernels* kernels = nullptr;
  std::string why_not;  ///< what the processor lacks
};

/// Widest first; the last one runs everywhere.
std::vector<InstructionSet> instruction_sets();

/// The widest that this processor has, or the one that the environment variable DISTATTN_ISA names: decided once a
/// process. Throws Error(usage) when DISTATTN_ISA names one that is unknown, Error(environment) where the processor
/// lacks it.
const VectorKernels& vector_kernels();

/// "avx512 (the widest that this processor has; built: avx512, avx2, generic)"
std::string isa_report();

}  // namespace distattn::kernels::vector
