// Compiled once for every instruction set, each time into a namespace of its own.

#include "kernels/portable/tile_functions.hpp"

#include "kernels/portable/tile_math.hpp"
#include "kernels/portable/tile_values.hpp"

namespace distattn::kernels::portable::DISTATTN_ISA {

const AllTileFunctions tile_functions{functions_of<Floats>, functions_of<Doubles>};

}  // namespace distattn::kernels::portable::DISTATTN_ISA
