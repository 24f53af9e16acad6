// Stands for the tile functions of an instruction set that was left out of the build.

#include "kernels/portable/tile_functions.hpp"

namespace distattn::kernels::portable::DISTATTN_ISA {

const AllTileFunctions tile_functions{};

}  // namespace distattn::kernels::portable::DISTATTN_ISA
