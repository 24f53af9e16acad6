#include "simt/products.hpp"

namespace simt {

void add_products(float* d, const float (&a)[16][16], const float* b, unsigned columns) {
  constexpr unsigned together = 8;  // sums that stay in registers
  for (unsigned n = 0; n < columns; n += together) {
    for (unsigned row = 0; row < 16; ++row) {
      float sums[together];
      for (unsigned i = 0; i < together; ++i) sums[i] = d[row * columns + n + i];
      for (unsigned k = 0; k < 16; ++k) {
        for (unsigned i = 0; i < together; ++i) sums[i] += a[row][k] * b[k * columns + n + i];
      }
      for (unsigned i = 0; i < together; ++i) d[row * columns + n + i] = sums[i];
    }
  }
}

}  // namespace simt
