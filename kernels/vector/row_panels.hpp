#pragma once
/// Rows as they lie, with the head dimension along the lanes, and sums of them.

#include "kernels/vector/packing.hpp"
#include "kernels/vector/product.hpp"
#include "kernels/vector/scratch.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Rows of a head, in panels of the head dimension: [dim panel][row][sum_width].
struct RowPanels {
  float* data;
  int rows;  ///< from one panel to the next

  std::ptrdiff_t panel_stride() const { return std::ptrdiff_t{rows} * sum_width; }
  float* panel(int x) const { return data + x / sum_width * panel_stride(); }
  float* at(int row, int x) const { return panel(x) + row * sum_width + x % sum_width; }
  /// The rows from `row` on.
  RowPanels from(int row) const { return {data + row * sum_width, rows}; }
};

inline RowPanels carve_rows(Carver& carve, int rows, int dim) {
  return {carve.floats(rows * rounded_up(dim, sum_width)), rows};
}

/// Asks for a row far enough ahead of the one that is read or written now.
DISTATTN_INLINE void ask_ahead(const HeadRows<const float>& rows, int row, int count, int dim) {
  constexpr int ahead = 32;
  if (row + ahead >= count) return;
  Prefetch({rows.data + (row + ahead) * rows.stride, rows.stride}, DType::fp32, 1, dim).all();
}

/// A row's elements as they are.
struct Unchanged {
  DISTATTN_INLINE Vector operator()(int, int, Vector some) const { return some; }
};

/// Copies rows, changed(row, x, elements) of them, with zeros for count ≤ row < padded. Returns whether all are finite.
template <class Changed = Unchanged>
inline bool pack_rows(const HeadRows<const float>& from, int count, int padded, int dim, const RowPanels& into,
                      Changed changed = {}) {
  Vector zeros[sum_vectors];
  for (Vector& zero : zeros) zero = 0.f;
  for (int i = 0; i < count; ++i) {
    ask_ahead(from, i, count, dim);
    const float* row = from.data + i * from.stride;
    for (int x = 0; x < dim; x += sum_width) {
#pragma GCC unroll 8
      for (int v = 0; v < sum_vectors; ++v) {
        const int at = x + v * lanes;
        if (at >= dim) break;
        const Vector some = changed(i, at, load_first(row + at, dim - at));
        zeros[v] += some * 0.f;
        store(into.at(i, at), some);
      }
    }
  }
  for (int i = count; i < padded; ++i) {
    for (int x = 0; x < dim; x += lanes) store(into.at(i, x), 0.f);
  }
  for (int v = 1; v < sum_vectors; ++v) zeros[0] += zeros[v];
  return stdx::reduce(zeros[0]) == 0.f;
}

/// Rows as the terms of sums over rows, in words: packed as they are, or as changed(row, x, elements). `buffer` has
/// room for rows that are widened.
template <class Changed = Unchanged>
inline bool pack_terms(const HeadRows<const void>& from, DType dtype, int count, int padded, int dim,
                       const RowPanels& into, float* buffer, Changed changed = {}) {
  if constexpr (!pairs) {
    return pack_rows(widened(from, dtype, count, dim, buffer), count, padded, dim, into, changed);
  }
  Vector zeros = 0.f;
  for (int i = 0; i < padded; i += in_word) {
    const auto* const row = static_cast<const std::uint16_t*>(from.data) + i * from.stride;
    for (int x = 0; x < dim; x += lanes) {
      const Vector first = i < count ? changed(i, x, load_bf16(row + x, dim - x)) : Vector(0.f);
      const Vector second = i + 1 < count ? changed(i + 1, x, load_bf16(row + from.stride + x, dim - x)) : Vector(0.f);
      zeros += first * 0.f + second * 0.f;
      store(into.at(words_of(i), x), joined(first, second));
    }
  }
  return stdx::reduce(zeros) == 0.f;
}

/// Whether no element of the words of the first `count` rows is NaN or infinite.
inline bool all_finite(const RowPanels& rows, int count, int dim) {
  Vector even = 0.f, odd = 0.f;
  for (int x = 0; x < dim; x += lanes) {
    const float* at = rows.at(0, x);
    int i = 0;
    for (; i + 2 <= words_of(count); i += 2, at += 2 * sum_width) {
      even += zeros_of(load(at));
      odd += zeros_of(load(at + sum_width));
    }
    if (i < words_of(count)) even += zeros_of(load(at));
  }
  return stdx::reduce(even + odd) == 0.f;
}

inline void clear_rows(const RowPanels& rows, int count, int dim) {
  for (int x = 0; x < dim; x += sum_width) {
    for (int i = 0; i < count * sum_width; i += lanes) store(rows.panel(x) + i, 0.f);
  }
}

/// into[row] = put(row, x, rows[row], before) from x on, `before` being a call for what is there.
template <class Put>
DISTATTN_INLINE void put_rows(const RowPanels& rows, int count, int dim, const HeadRows<float>& into, Put put) {
  for (int i = 0; i < count; ++i) {
    ask_ahead({into.data, into.stride}, i, count, dim);
    float* row = into.data + i * into.stride;
    for (int x = 0; x < dim; x += lanes) {
      const auto before = [&] { return load_first(row + x, dim - x); };
      store_first(row + x, put(i, x, load(rows.at(i, x)), before), dim - x);
    }
  }
}

/// into (+)= rows.
inline void add_rows(const RowPanels& rows, int count, int dim, bool carry, const HeadRows<float>& into) {
  put_rows(rows, count, dim, into, [&](int, int, Vector sum, auto before) { return carry ? before() + sum : sum; });
}

/// Sums of rows: into[r][x] = start(r, into[r][x]) + Σ_k coefficients[r·RowStride + k·TermStride] · terms[k][x], where
/// k counts words: ranges, in terms, begin and end with whole ones.
template <int RowStride, int TermStride>
struct RowSums {
  const Range* ranges;  ///< of terms, one for every sum_rows rows; rows without terms stay as they are
  int count;            ///< rows
  int dim;
  const float* coefficients;
  RowPanels terms;
  RowPanels into;
};

/// What a sum starts with: what is there.
struct Kept {
  template <class Value>
  DISTATTN_INLINE Value operator()(int, Value before) const {
    return before;
  }
};

/// `Vectors` vectors of the head dimension from x on, where a panel begins. The terms are summed by themselves first: a
/// long sum that took them one by one would lose of each what it loses of one block.
template <int Vectors, int RowStride, int TermStride, class Start>
DISTATTN_INLINE void sum_panel(const RowSums<RowStride, TermStride>& sums, int x, Start start) {
  for (int r = 0; r < sums.count; r += sum_rows) {
    const Range& range = sums.ranges[r / sum_rows];
    if (range.empty()) continue;
    float* at = sums.into.at(r, x);
    product<sum_rows, Vectors, RowStride, TermStride, sum_width>(
        words_of(range.to - range.from), sums.coefficients + r * RowStride + words_of(range.from) * TermStride,
        sums.terms.at(words_of(range.from), x), [](int, int) { return Vector(0.f); },
        [&](int i, int v, Vector sum) {
          float* const into = at + i * sum_width + v * lanes;
          if (i < sums.count - r) store(into, start(r + i, load(into)) + sum);
        });
  }
}

/// Touches no term but those that sees(row, term).
template <int RowStride, int TermStride, class Sees, class Start>
inline void sum_seen(const RowSums<RowStride, TermStride>& sums, Sees sees, Start start) {
  for (int r = 0; r < sums.count; ++r) {
    const Range& range = sums.ranges[r / sum_rows];
    if (range.empty()) continue;
    for (int x = 0; x < sums.dim; ++x) *sums.into.at(r, x) = start(r, *sums.into.at(r, x));
    for (int k = range.from; k < range.to; ++k) {
      if (!sees(r, k)) continue;
      const float coefficient = element_of(sums.coefficients + r * RowStride + words_of(k) * TermStride, k);
      for (int x = 0; x < sums.dim; ++x) {
        *sums.into.at(r, x) += coefficient * element_of(sums.terms.at(words_of(k), x), k);
      }
    }
  }
}

/// Makes the sums. The coefficient of a term that its row does not see is 0: that hides it where it is `harmless`, that
/// is finite, or where every row sees every term. Elsewhere sees(row, term) decides.
template <int RowStride, int TermStride, class Sees, class Start>
inline void add_terms(const RowSums<RowStride, TermStride>& sums, bool harmless, Sees sees, Start start) {
  if (!harmless) return sum_seen(sums, sees, start);
  for (int x = 0; x < sums.dim; x += sum_width) {
    const int vectors = (smaller(sum_width, sums.dim - x) + lanes - 1) / lanes;
    by_count<sum_vectors>(vectors, [&]<int Vectors>() { sum_panel<Vectors>(sums, x, start); });
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
