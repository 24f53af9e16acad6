#pragma once
/// How rows are kept whose sums are made: as products make them.

#include "kernels/vector/row_panels.hpp"
#if defined(__AMX_BF16__)
#include "kernels/vector/column_panels.hpp"
#endif

namespace distattn::kernels::vector::DISTATTN_ISA {

#if defined(__AMX_BF16__)
using SumRows = ColumnPanels;
inline SumRows carve_sums(Carver& carve, int rows, int dim) { return carve_columns(carve, rows, dim); }
#else
using SumRows = RowPanels;
inline SumRows carve_sums(Carver& carve, int rows, int dim) { return carve_rows(carve, rows, dim); }
#endif

}  // namespace distattn::kernels::vector::DISTATTN_ISA
