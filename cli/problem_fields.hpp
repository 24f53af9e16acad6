#pragma once
/// A problem as fields of JSON, and in which of them rows differ.

#include <string>
#include <vector>

#include "distattn/problem.hpp"
#include "output.hpp"

namespace distattn::cli {

/// dtype, wire, mask, batch, seq, seq_kv, heads, kv_heads, head_dim, value_dim
void add_problem(const Problem& problem, Json& json);

/// Whether a field is not the same in all rows, and not only because it is by default what another one is: keys follow
/// queries, key heads follow heads, and the dimension of values that of keys.
bool differ_in(const std::vector<Json>& rows, const std::string& field);
/// The fields of a problem in which rows differ so.
std::vector<std::string> differing_fields(const std::vector<Json>& rows);

/// A value as a cell of a table: text without quotes.
std::string plain_text(const Json& value);

}  // namespace distattn::cli
