#include "distattn/error.hpp"
#include "kernels/portable/tile_functions.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::kernels::portable {

const AllTileFunctions& tile_functions() {
  static const AllTileFunctions& chosen = []() -> const AllTileFunctions& {
    const vector::VectorKernels* const kernels = &vector::vector_kernels();
#if defined(__x86_64__)
    if (kernels == &vector::isa_avx512::vector_kernels) return isa_avx512::tile_functions;
    if (kernels == &vector::isa_avx2::vector_kernels) return isa_avx2::tile_functions;
#endif
    DISTATTN_EXPECT(kernels == &vector::isa_generic::vector_kernels);
    return isa_generic::tile_functions;
  }();
  return chosen;
}

}  // namespace distattn::kernels::portable
