#pragma once
/// The functions of tiles.hpp for every instruction set that they are compiled for.

#include "kernels/portable/tiles.hpp"

namespace distattn::kernels::portable {

namespace isa_avx512 {
extern const AllTileFunctions tile_functions;
}
namespace isa_avx2 {
extern const AllTileFunctions tile_functions;
}
namespace isa_generic {
extern const AllTileFunctions tile_functions;
}

}  // namespace distattn::kernels::portable
