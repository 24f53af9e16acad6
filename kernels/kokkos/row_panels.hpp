#pragma once
/// Rows as they lie, with the head dimension along the lanes, and sums of them.

#include "kernels/kokkos/packing.hpp"
#include "kernels/kokkos/product.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

/// Rows of a head, in panels of the head dimension: [dim panel][row][sum_width].
struct RowPanels {
  float* data;
  int rows;  ///< of a panel

  float* panel(int x) const { return data + x / sum_width * rows * sum_width; }
  float* at(int row, int x) const { return panel(x) + row * sum_width + x % sum_width; }
  /// The rows from `row` on.
  RowPanels from(int row) const { return {data + row * sum_width, rows}; }
};

/// Copies rows, with zeros for count ≤ row < padded. Returns whether all are finite.
inline bool pack_rows(const HeadRows<const float>& from, int count, int padded, int dim, const RowPanels& into) {
  constexpr int ahead = 32;
  Vector zeros = 0.f;
  for (int i = 0; i < count; ++i) {
    const float* row = from.data + i * from.stride;
    if (i + ahead < count) Prefetch({row + ahead * from.stride, from.stride}, DType::fp32, 1, dim).all();
    for (int x = 0; x < dim; x += lanes) {
      const Vector some = load_first(row + x, dim - x);
      zeros += some * 0.f;
      store(into.at(i, x), some);
    }
  }
  for (int i = count; i < padded; ++i) {
    for (int x = 0; x < dim; x += lanes) store(into.at(i, x), 0.f);
  }
  return stdx::reduce(zeros) == 0.f;
}

inline void clear_rows(const RowPanels& rows, int count, int dim) {
  for (int x = 0; x < dim; x += sum_width) {
    for (int i = 0; i < count * sum_width; i += lanes) store(rows.panel(x) + i, 0.f);
  }
}

/// into[row] = put(row, rows[row], before), `before` being a call for what is there.
template <class Put>
DISTATTN_INLINE void put_rows(const RowPanels& rows, int count, int dim, const HeadRows<float>& into, Put put) {
  constexpr int ahead = 32;
  for (int i = 0; i < count; ++i) {
    float* row = into.data + i * into.stride;
    if (i + ahead < count) Prefetch({row + ahead * into.stride, into.stride}, DType::fp32, 1, dim).all();
    for (int x = 0; x < dim; x += lanes) {
      const auto before = [&] { return load_first(row + x, dim - x); };
      store_first(row + x, put(i, load(rows.at(i, x)), before), dim - x);
    }
  }
}

/// into (+)= rows.
inline void add_rows(const RowPanels& rows, int count, int dim, bool carry, const HeadRows<float>& into) {
  put_rows(rows, count, dim, into, [&](int, Vector sum, auto before) { return carry ? before() + sum : sum; });
}

/// What a sum begins with: what is there.
struct Kept {
  template <class Value>
  DISTATTN_INLINE Value operator()(int, Value before) const {
    return before;
  }
};

/// into[r][x] = start(r, into[r][x]) + Σ_k coefficients[r·RowStride + k·TermStride] · terms[k][x] for rows r < count,
/// over the terms k of ranges[r / sum_rows], and one panel of `Vectors` vectors of the head dimension. Rows whose range
/// is empty stay as they are.
template <int RowStride, int TermStride, int Vectors, class Start>
DISTATTN_INLINE void add_panel(const Range* ranges, int count, const float* coefficients, const float* terms,
                               float* into, Start start) {
  for (int r = 0; r < count; r += sum_rows, ++ranges) {
    if (ranges->empty()) continue;
    float* at = into + r * sum_width;
    product<sum_rows, Vectors, RowStride, TermStride, sum_width>(
        ranges->to - ranges->from, coefficients + r * RowStride + ranges->from * TermStride,
        terms + ranges->from * sum_width,
        [&](int i, int v) { return start(r + i, load(at + i * sum_width + v * lanes)); },
        [&](int i, int v, Vector sum) {
          if (i < count - r) store(at + i * sum_width + v * lanes, sum);
        });
  }
}

/// The same of all panels.
template <int RowStride, int TermStride, class Start>
inline void add_product(const Range* ranges, int count, int dim, const float* coefficients, const RowPanels& terms,
                        const RowPanels& into, Start start) {
  for (int x = 0; x < dim; x += sum_width) {
    const auto add = [&]<int Vectors>() {
      add_panel<RowStride, TermStride, Vectors>(ranges, count, coefficients, terms.panel(x), into.panel(x), start);
    };
    switch ((smaller(sum_width, dim - x) + lanes - 1) / lanes) {
      case 1:
        add.template operator()<1>();
        break;
      case 2:
        add.template operator()<2>();
        break;
      case 3:
        add.template operator()<smaller(3, sum_vectors)>();
        break;
      default:
        add.template operator()<sum_vectors>();
        break;
    }
  }
}

/// The same without touching terms that sees(row, term) rules out: a coefficient of 0 does not hide what is not finite.
template <int RowStride, int TermStride, class Sees, class Start>
inline void add_seen(const Range* ranges, int count, int dim, const float* coefficients, const RowPanels& terms,
                     const RowPanels& into, Sees sees, Start start) {
  for (int r = 0; r < count; ++r) {
    const Range& range = ranges[r / sum_rows];
    if (range.empty()) continue;
    for (int x = 0; x < dim; ++x) *into.at(r, x) = start(r, *into.at(r, x));
    for (int k = range.from; k < range.to; ++k) {
      if (!sees(r, k)) continue;
      for (int x = 0; x < dim; ++x) *into.at(r, x) += coefficients[r * RowStride + k * TermStride] * *terms.at(k, x);
    }
  }
}

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
