#pragma once
/// Gradients of one block of queries against a chunk of keys (FlashAttention-2, Algorithm 2).
///
/// Sᵀ = K·Qᵀ and dPᵀ = V·dOᵀ have queries along the lanes; Pᵀ = 2^(Sᵀ − lse) and dSᵀ = scale·Pᵀ∘(dPᵀ − delta) are made
/// from them in registers. Then dV += Pᵀ·dO and dK += dSᵀ·Q, with the head dimension along the lanes, and
/// dQᵀ += Kᵀ·dSᵀ, with queries again: no product needs an operand transposed that is not an input.

#include "kernels/kokkos/backward_scratch.hpp"
#include "kernels/kokkos/packing.hpp"
#include "kernels/kokkos/product.hpp"
#include "kernels/kokkos/vector_kernels.hpp"
#include "kernels/kokkos/visible.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

inline void clear_gradients(const GradientPanels& gradients, int keys, int dim) {
  for (int x = 0; x < dim; x += gradient_width) {
    for (int i = 0; i < keys * gradient_width; i += lanes) store(gradients.panel(x) + i, 0.f);
  }
}

/// Packs a chunk of keys for any number of blocks of queries.
inline void backward_chunk_begin(const BackwardChunk& chunk, std::byte* memory) {
  const int head_dim = chunk.head_dim, value_dim = chunk.value_dim;
  const BackwardScratch scratch(memory, head_dim, value_dim);
  scratch.finite->keys = true;
  constexpr int ahead = 4 * tile_rows;
  for (int j = 0; j < chunk.keys; j += tile_rows) {
    const int count = smaller(tile_rows, chunk.keys - j);
    const int next = smaller(j + ahead, chunk.keys), next_count = smaller(tile_rows, chunk.keys - next);
    Prefetch(rows_from(chunk.k, chunk.dtype, next), chunk.dtype, next_count, head_dim).all();
    Prefetch(rows_from(chunk.v, chunk.dtype, next), chunk.dtype, next_count, value_dim).all();
    const HeadRows<const float> k =
        widened(rows_from(chunk.k, chunk.dtype, j), chunk.dtype, count, head_dim, scratch.widened);
    pack_transposed<tile_rows>(k, count, head_dim, 1.f, scratch.keys + j * head_dim);
    scratch.finite->keys = scratch.finite->keys && all_finite(k, count, head_dim);
    pack_tiles<tile_rows>(k, count, head_dim, scratch.key_columns + j * tile_rows, scratch.column_tile);
    const HeadRows<const float> v =
        widened(rows_from(chunk.v, chunk.dtype, j), chunk.dtype, count, value_dim, scratch.widened);
    pack_transposed<tile_rows>(v, count, value_dim, 1.f, scratch.values + j * value_dim);
  }
}

inline void backward_sum_begin(const BackwardChunk& chunk, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  clear_gradients(scratch.d_keys, chunk.keys, chunk.head_dim);
  clear_gradients(scratch.d_values, chunk.keys, chunk.value_dim);
}

/// Rows of the panels that some row of a block is in.
inline int rows_of_panels(int rows) { return rounded_up(rows, panel_width); }

/// Packs rows of queries or of dO both ways: along and across the lanes. Returns whether all are finite.
inline bool pack_block_rows(const HeadRows<const void>& from, DType dtype, int count, int dim, float factor,
                            float* widened_rows, float* panels, float* rows) {
  const HeadRows<const float> floats = widened(from, dtype, count, dim, widened_rows);
  for (int row = 0; row < count; row += panel_width) {
    const int panel = smaller(panel_width, count - row), next = row + panel;
    Prefetch(rows_from(from, dtype, next), dtype, smaller(panel_width, count - next), dim).all();
    pack_transposed<panel_width>({floats.data + row * floats.stride, floats.stride}, panel, dim, factor,
                                 panels + row * dim);
  }
  pack_panels<gradient_width>(floats, count, rows_of_panels(count), backward_rows, dim, rows);
  return all_finite(floats, count, dim);
}

inline void backward_block_begin(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  scratch.finite->queries = pack_block_rows(block.q, chunk.dtype, block.rows, chunk.head_dim, chunk.scale * log2_e,
                                            scratch.widened, scratch.queries, scratch.query_rows);
  scratch.finite->d_outputs = pack_block_rows(block.d_o, chunk.dtype, block.rows, chunk.value_dim, 1.f, scratch.widened,
                                              scratch.d_outputs, scratch.d_output_rows);
  const int rows = rows_of_panels(block.rows);
  for (int i = 0; i < rows; ++i) {
    scratch.lse[i] = i < block.rows ? block.lse[i] * log2_e : 0.f;
    scratch.delta[i] = i < block.rows ? block.delta[i] * chunk.scale : 0.f;
  }
  for (int i = 0; i < rows * chunk.head_dim; i += lanes) store(scratch.d_queries + i, 0.f);
}

/// What the end of a block and the next block will ask memory for. Brought nearer while the block's last keys are
/// multiplied: what comes earlier is gone again by then.
struct NextRows {
  Prefetch d_queries, queries, d_outputs;
  bool due = false;

  DISTATTN_INLINE void some() {
    if (!due) return;
    d_queries.some();
    queries.some();
    d_outputs.some();
  }
};

/// Pᵀ of one panel of queries against keys [key, end).
inline void weigh_panel(const BackwardChunk& chunk, const PanelKeys& keys, int row, int key, int end,
                        const BackwardScratch& scratch, NextRows& next) {
  const float* queries = scratch.queries + row * chunk.head_dim;
  for (int j = key; j < end; j += tile_rows) {
    next.some();
    float* weights = scratch.weights + (j - key) * backward_rows + row;
    visit_tile<backward_rows>(keys, j, weights, 0.f, [&]<int Vectors, bool Masked>(int from) {
      product<tile_rows, Vectors, 1, tile_rows, panel_width>(
          chunk.head_dim, scratch.keys + j * chunk.head_dim, queries + from * lanes,
          [](int, int) { return Vector(0.f); },
          [&](int i, int v, Vector score) {
            v += from;
            Vector weight = exp2(score - load(scratch.lse + row + v * lanes));
            if constexpr (Masked) weight = replace(keys.hidden(v, j + i), weight, 0.f);
            store(weights + i * backward_rows + v * lanes, weight);
          });
    });
  }
}

/// dSᵀ of one panel of queries against keys [key, end), from their Pᵀ.
inline void differentiate_panel(const BackwardChunk& chunk, const PanelKeys& keys, int row, int key, int end,
                                const BackwardScratch& scratch, NextRows& next) {
  const float* d_outputs = scratch.d_outputs + row * chunk.value_dim;
  for (int j = key; j < end; j += tile_rows) {
    next.some();
    const float* weights = scratch.weights + (j - key) * backward_rows + row;
    float* d_scores = scratch.d_scores + (j - key) * backward_rows + row;
    visit_tile<backward_rows>(keys, j, d_scores, 0.f, [&]<int Vectors, bool Masked>(int from) {
      product<tile_rows, Vectors, 1, tile_rows, panel_width>(
          chunk.value_dim, scratch.values + j * chunk.value_dim, d_outputs + from * lanes,
          [](int, int) { return Vector(0.f); },
          [&](int i, int v, Vector d_weight) {
            v += from;
            const Vector change = d_weight * chunk.scale - load(scratch.delta + row + v * lanes);
            Vector d_score = load(weights + i * backward_rows + v * lanes) * change;
            if constexpr (Masked) d_score = replace(keys.hidden(v, j + i), d_score, 0.f);
            store(d_scores + i * backward_rows + v * lanes, d_score);
          });
    });
  }
}

/// What the panels of a block see.
struct BlockKeys {
  PanelKeys panel[backward_panels];
  int panels;

  const PanelKeys* begin() const { return panel; }
  const PanelKeys* end() const { return panel + panels; }
};

/// Queries of a block.
struct RowRange {
  int from, to;
};

/// Rows of the block that see some of the `count` keys from `key` on, in whole vectors.
inline RowRange rows_seeing(const BlockKeys& keys, int key, int count) {
  RowRange rows{backward_rows, 0};
  for (int p = 0; p < keys.panels; ++p) {
    const VectorRange range = keys.panel[p].seeing(key, count);
    if (range.from == range.to) continue;
    rows.from = smaller(rows.from, p * panel_width + range.from * lanes);
    rows.to = p * panel_width + range.to * lanes;
  }
  return rows;
}

/// into[j][x] += Σ_row coefficients[j][row] · rows[row][x] for keys j of [key, end) and one panel of `Vectors` vectors
/// of the head dimension.
template <int Vectors>
DISTATTN_INLINE void add_gradient_panel(const BlockKeys& keys, int key, int end, const float* coefficients,
                                        const float* rows, float* into) {
  for (int j = key; j < end; j += gradient_rows) {
    const RowRange seeing = rows_seeing(keys, j, smaller(gradient_rows, end - j));
    if (seeing.to <= seeing.from) continue;
    float* at = into + j * gradient_width;
    product<gradient_rows, Vectors, backward_rows, 1, gradient_width>(
        seeing.to - seeing.from, coefficients + (j - key) * backward_rows + seeing.from,
        rows + seeing.from * gradient_width, [&](int i, int v) { return load(at + i * gradient_width + v * lanes); },
        [&](int i, int v, Vector sum) {
          if (i < end - j) store(at + i * gradient_width + v * lanes, sum);
        });
  }
}

/// dV += Pᵀ·dO, or dK += dSᵀ·Q.
inline void add_gradient(const BlockKeys& keys, int key, int end, int dim, const float* coefficients, const float* rows,
                         const GradientPanels& into) {
  for (int x = 0; x < dim; x += gradient_width, rows += backward_rows * gradient_width) {
    const auto add = [&]<int Vectors>() {
      add_gradient_panel<Vectors>(keys, key, end, coefficients, rows, into.panel(x));
    };
    switch ((smaller(gradient_width, dim - x) + lanes - 1) / lanes) {
      case 1:
        add.template operator()<1>();
        break;
      case 2:
        add.template operator()<2>();
        break;
      case 3:
        add.template operator()<smaller(3, gradient_vectors)>();
        break;
      default:
        add.template operator()<gradient_vectors>();
        break;
    }
  }
}

/// The same without touching rows that do not see a key.
inline void add_seen_gradient(const BlockKeys& block, int key, int end, int dim, const float* coefficients,
                              const float* rows, const GradientPanels& into) {
  for (int j = key; j < end; ++j) {
    for (int row = 0; row < block.panels * panel_width; ++row) {
      const PanelKeys& keys = block.panel[row / panel_width];
      if (j < keys.begin[row % panel_width] || j >= keys.end[row % panel_width]) continue;
      const float coefficient = coefficients[(j - key) * backward_rows + row];
      for (int x = 0; x < dim; ++x) {
        const int panel = x / gradient_width, column = x % gradient_width;
        *into.at(j, x) += coefficient * rows[(panel * backward_rows + row) * gradient_width + column];
      }
    }
  }
}

inline bool all_see(const BlockKeys& block, int key, int end) {
  for (const PanelKeys& keys : block) {
    if (!keys.see_all(key, end - key)) return false;
  }
  return true;
}

/// dQᵀ += Kᵀ·dSᵀ for one panel of queries.
inline void add_d_queries(const BackwardChunk& chunk, const PanelKeys& keys, int row, int key, int end,
                          const BackwardScratch& scratch) {
  const KeyParts parts = key_parts(keys, bigger(key, keys.first), smaller(end, keys.last));
  for (int x = 0; x < chunk.head_dim; x += tile_rows) {
    const float* columns = scratch.key_columns + x / tile_rows * scratch.column_tile;
    for (int p = 0; p < parts.count; ++p) {
      const KeyPart& part = parts.part[p];
      const int column = part.vectors.from * lanes;
      float* at = scratch.d_queries + row * chunk.head_dim + x * panel_width + column;
      by_vectors(part.vectors, [&]<int Vectors>() {
        product<tile_rows, Vectors, 1, tile_rows, backward_rows>(
            part.last - part.first, columns + part.first * tile_rows,
            scratch.d_scores + (part.first - key) * backward_rows + row + column,
            [&](int i, int v) { return load(at + i * panel_width + v * lanes); },
            [&](int i, int v, Vector sum) { store(at + i * panel_width + v * lanes, sum); });
      });
    }
  }
}

/// The same without touching keys that a query does not see.
inline void add_seen_d_queries(const BackwardChunk& chunk, const PanelKeys& keys, int row, int key, int end,
                               const BackwardScratch& scratch) {
  for (int i = 0; i < panel_width; ++i) {
    for (int j = bigger(key, keys.begin[i]); j < smaller(end, keys.end[i]); ++j) {
      const float d_score = scratch.d_scores[(j - key) * backward_rows + row + i];
      for (int x = 0; x < chunk.head_dim; ++x) {
        scratch.d_queries[row * chunk.head_dim + x * panel_width + i] +=
            d_score * scratch.key_columns[x / tile_rows * scratch.column_tile + j * tile_rows + x % tile_rows];
      }
    }
  }
}

/// The products that follow from Pᵀ and dSᵀ of keys [key, end).
inline void add_products(const BackwardChunk& chunk, const BlockKeys& keys, int key, int end,
                         const BackwardScratch& scratch) {
  const bool all = all_see(keys, key, end);
  const Finite& finite = *scratch.finite;
  (all || finite.d_outputs ? add_gradient : add_seen_gradient)(keys, key, end, chunk.value_dim, scratch.weights,
                                                               scratch.d_output_rows, scratch.d_values);
  (all || finite.queries ? add_gradient : add_seen_gradient)(keys, key, end, chunk.head_dim, scratch.d_scores,
                                                             scratch.query_rows, scratch.d_keys);
  for (int p = 0; p < keys.panels; ++p) {
    (all || finite.keys ? add_d_queries : add_seen_d_queries)(chunk, keys.panel[p], p * panel_width, key, end, scratch);
  }
}

inline void backward_pass(const BackwardChunk& chunk, const BackwardBlock& block, const std::int32_t* begin,
                          const std::int32_t* end_of, std::byte* memory, const StopFlag& stop) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  BlockKeys keys;
  keys.panels = rows_of_panels(block.rows) / panel_width;
  int first = 0x7fffffff, last = 0;
  for (int p = 0; p < keys.panels; ++p) {
    keys.panel[p] = panel_keys(begin + p * panel_width, end_of + p * panel_width);
    first = smaller(first, keys.panel[p].first);
    last = bigger(last, keys.panel[p].last);
  }
  NextRows next{{rows_of(block.dq), DType::fp32, block.rows, chunk.head_dim},
                {block.next_q, chunk.dtype, block.next_rows, chunk.head_dim},
                {block.next_d_o, chunk.dtype, block.next_rows, chunk.value_dim}};
  for (int key = first / tile_rows * tile_rows; key < last; key += backward_keys) {
    if (stop.load(std::memory_order_relaxed)) return;
    const int end = smaller(last, key + backward_keys);
    next.due = key + backward_keys >= last;
    for (int p = 0; p < keys.panels; ++p) {
      weigh_panel(chunk, keys.panel[p], p * panel_width, key, end, scratch, next);
    }
    for (int p = 0; p < keys.panels; ++p) {
      differentiate_panel(chunk, keys.panel[p], p * panel_width, key, end, scratch, next);
    }
    add_products(chunk, keys, key, end, scratch);
  }
}

/// The result (+)= the block's dQ over the chunk.
inline void backward_block_end(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  for (int row = 0; row < block.rows; row += panel_width) {
    float* dq = block.dq.data + row * block.dq.stride;
    unpack_transposed<panel_width>(scratch.d_queries + row * chunk.head_dim, smaller(panel_width, block.rows - row),
                                   chunk.head_dim, [&](int i, int x, Quad four) {
                                     float* at = dq + i * block.dq.stride + x;
                                     store_quad(at, block.carry ? load_quad(at) + four : four);
                                   });
  }
}

/// into (+)= gradients of the chunk's keys.
inline void put_gradients(const GradientPanels& gradients, int keys, int dim, bool carry, const HeadRows<float>& into) {
  constexpr int ahead = 16;
  for (int j = 0; j < keys; ++j) {
    if (j + ahead < keys) Prefetch(rows_from(rows_of(into), DType::fp32, j + ahead), DType::fp32, 1, dim).all();
    float* row = into.data + j * into.stride;
    for (int x = 0; x < dim; x += lanes) {
      const Vector sum = load(gradients.at(j, x));
      store_first(row + x, carry ? load_first(row + x, dim - x) + sum : sum, dim - x);
    }
  }
}

inline void backward_sum_end(const BackwardChunk& chunk, std::byte* memory) {
  const BackwardScratch scratch(memory, chunk.head_dim, chunk.value_dim);
  put_gradients(scratch.d_keys, chunk.keys, chunk.head_dim, chunk.carry, chunk.dk);
  put_gradients(scratch.d_values, chunk.keys, chunk.value_dim, chunk.carry, chunk.dv);
}

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
