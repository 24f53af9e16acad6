#pragma once
/// What values of options look like: sizes, lists, ranges, words.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distattn::cli {

/// A whole number, K, M and G counting in 1024s: "64K". All of these throw Error(usage) that names `option`.
std::int64_t parse_size(std::string_view option, std::string_view text);

/// Lists "1,2,4", ranges "2-8" and "1K-64K*2", and mixtures of them; at most ten thousand values.
std::vector<std::int64_t> parse_sizes(std::string_view option, std::string_view text);

/// A finite decimal number.
double parse_number(std::string_view option, std::string_view text);

/// `text` between commas; empty items are refused.
std::vector<std::string> parse_list(std::string_view option, std::string_view text);

/// Refuses a value outside lowest … highest.
std::int64_t within(std::string_view option, std::int64_t value, std::int64_t lowest, std::int64_t highest);

/// The index of `text` in `words`, or a refusal that lists them.
std::size_t parse_word(std::string_view option, std::string_view text, std::span<const std::string_view> words);

}  // namespace distattn::cli
