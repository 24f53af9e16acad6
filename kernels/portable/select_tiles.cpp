#include "distattn/error.hpp"
#include "kernels/kokkos/select.hpp"
#include "kernels/portable/tile_functions.hpp"

namespace distattn::kernels::portable {

const AllTileFunctions& tile_functions() {
  static const AllTileFunctions& chosen = []() -> const AllTileFunctions& {
    const kokkos::VectorKernels* const kernels = &kokkos::vector_kernels();
#if defined(__x86_64__)
    if (kernels == &kokkos::isa_avx512::vector_kernels) return isa_avx512::tile_functions;
    if (kernels == &kokkos::isa_avx2::vector_kernels) return isa_avx2::tile_functions;
#endif
    DISTATTN_EXPECT(kernels == &kokkos::isa_generic::vector_kernels);
    return isa_generic::tile_functions;
  }();
  return chosen;
}

}  // namespace distattn::kernels::portable
