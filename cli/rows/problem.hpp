#pragma once
/// A problem's fields, which rows of several commands have.

#include "core/src/fields.hpp"
#include "distattn/problem.hpp"

namespace distattn::cli {

inline void type_fields(const Problem& problem, RowFields& field) {
  field({"dtype", units::none, "Element type of the tensors."}, problem.dtype);
  field({"wire", units::none, "Element type of partial results and gradients in messages."}, problem.wire_type());
  field({"mask", units::none, "The mask, in words."}, problem.mask.name);
  field({"batch", units::none, "Sequences of a batch."}, problem.batch);
}

inline void head_fields(int heads, int kv_heads, int head_dim, int value_dim, RowFields& field) {
  field({"heads", units::none, "Query heads."}, heads);
  field({"kv_heads", units::none, "Key and value heads.", "heads"}, kv_heads);
  field({"head_dim", units::none, "Elements of a query or a key."}, head_dim);
  field({"value_dim", units::none, "Elements of a value.", "head_dim"}, value_dim);
}

/// All but the number of queries, which a plan prints further up.
inline void size_fields(const Problem& problem, RowFields& field) {
  field({"seq_kv", units::tokens, "Keys of a sequence.", "seq"}, problem.seq_kv);
  head_fields(problem.heads, problem.kv_heads, problem.head_dim, problem.value_dim, field);
}

}  // namespace distattn::cli
