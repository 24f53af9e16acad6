#pragma once
/// A problem as fields of JSON, and in which of them rows differ.

#include <string>
#include <vector>

#include "distattn/problem.hpp"
#include "output.hpp"

namespace distattn::cli {

/// dtype, wire, mask, batch, seq, seq_kv, heads, kv_heads, head_dim, value_dim
void add_problem(const Problem& problem, Json& json);

/// Those of them that are not the same in all rows.
std::vector<std::string> differing_fields(const std::vector<Json>& rows);

/// A value as a cell of a table: text without quotes.
std::string plain_text(const Json& value);

}  // namespace distattn::cli
