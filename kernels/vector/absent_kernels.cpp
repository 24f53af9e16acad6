// Stands for the kernels of an instruction set that was left out of the build.

#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

const VectorKernels vector_kernels{};

}  // namespace distattn::kernels::vector::DISTATTN_ISA
