#pragma once
/// What matrix instructions compute once their operands are there, apart so that it is optimised where kernels are not.

namespace simt {

/// d += a b for 16 rows of a. d and b have `columns` columns, a multiple of 8. Every sum takes its products in order.
void add_products(float* d, const float (&a)[16][16], const float* b, unsigned columns);

}  // namespace simt
