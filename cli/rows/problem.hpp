#pragma once
/// A problem's fields, which rows of several commands have.

#include <optional>

#include "core/src/fields.hpp"
#include "distattn/problem.hpp"

namespace distattn::cli {

inline void type_fields(const Problem& problem, RowFields& field) {
  field({"dtype", units::none, "Element type of the tensors."}, problem.dtype);
  field({"wire", units::none, "Element type of partial results and gradients in messages."}, problem.wire_type());
  field({"mask", units::none, "The mask, in words."}, problem.mask.name);
  const Scores& scores = problem.scores;
  field({"softcap", units::none, "Cap of the scores, null without --softcap."},
        scores.softcap == 0 ? std::nullopt : std::optional(scores.softcap));
  field({"alibi", units::none, "Whether scores have a linear position bias."}, !problem.alibi_slopes.empty());
  field({"sink_logits", units::none, "Whether rows have a sink logit."}, scores.sink_logits);
  field({"dropout", units::none, "Probability that a weight is dropped."}, scores.dropout);
  field({"max_logit", units::none, "Whether the largest score of each head was asked for."}, scores.max_logit);
  field({"shared_kv", units::none, "Whether values are the beginning of keys."}, problem.shared_kv);
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
