#include "cli/options/values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t most_values = 10'000;

[[noreturn]] void refuse_value(std::string_view option, std::string_view text, std::string_view why,
                               std::string_view suggestion) {
  refuse(fmt::format("{} {} ({}): {}", option, text.empty() ? "''" : text, why, suggestion));
}

std::optional<std::int64_t> unit_of(std::string_view suffix) {
  if (suffix.empty()) return 1;
  if (suffix == "K" || suffix == "k") return std::int64_t{1} << 10;
  if (suffix == "M" || suffix == "m") return std::int64_t{1} << 20;
  if (suffix == "G" || suffix == "g") return std::int64_t{1} << 30;
  return std::nullopt;
}

/// "2-8" by ones, "1K-64K*2" by a factor; appends to `values`.
void append_range(std::string_view option, std::string_view text, std::vector<std::int64_t>& values) {
  const std::size_t dash = text.find('-', 1);  // one in front is a sign
  if (dash == text.npos) {
    values.push_back(parse_size(option, text));
    return;
  }
  const std::size_t star = text.find('*', dash);
  const std::string_view end = text.substr(dash + 1, star == text.npos ? star : star - dash - 1);
  if (end.empty() || star + 1 == text.size()) {
    refuse_value(option, text, "not a range", "write it as low-high or low-high*factor");
  }
  const std::int64_t first = parse_size(option, text.substr(0, dash));
  const std::int64_t last = parse_size(option, end);
  const std::int64_t factor = star == text.npos ? 1 : parse_size(option, text.substr(star + 1));
  if (first > last) refuse_value(option, text, "the range runs backwards", "write it as low-high");
  if (star != text.npos && (factor < 2 || first < 1)) {
    refuse_value(option, text, "the range never ends", "multiply a positive number by 2 or more");
  }
  for (std::int64_t value = first;;) {
    if (values.size() == most_values) {
      refuse_value(option, text, fmt::format("more than {} values", most_values), "choose a coarser range");
    }
    values.push_back(value);
    if (star == text.npos ? value == last : value > last / factor) return;
    value = star == text.npos ? value + 1 : value * factor;
  }
}

}  // namespace

std::int64_t parse_size(std::string_view option, std::string_view text) {
  constexpr std::string_view suggestion = "give a whole number, K, M or G counting in 1024s";
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto unit = unit_of(text.substr(index(end - text.data())));
  if (error == std::errc::result_out_of_range || (unit && __builtin_mul_overflow(value, *unit, &value))) {
    refuse_value(option, text, "too large: it passes 63 bits", suggestion);
  }
  if (error != std::errc{} || !unit) refuse_value(option, text, "not a size", suggestion);
  if (value < 0) refuse_value(option, text, "negative", suggestion);
  return value;
}

std::vector<std::int64_t> parse_sizes(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> values;
  for (const std::string& item : parse_list(option, text)) append_range(option, item, values);
  return values;
}

double parse_number(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
    refuse_value(option, text, "float64 does not hold it", "give a number from 1e-307 to 1e308");
  }
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    refuse_value(option, text, "not a finite number", "give a decimal number");
  }
  return value;
}

std::vector<std::string> parse_list(std::string_view option, std::string_view text) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    items.emplace_back(text.substr(begin, comma - begin));
    if (items.back().empty()) refuse_value(option, text, "an empty item", "write the list as a,b,c");
    begin = comma + 1;
  }
  return items;
}

std::int64_t within(std::string_view option, std::int64_t value, std::int64_t lowest, std::int64_t highest) {
  if (value < lowest || value > highest) {
    refuse(fmt::format("{} {} (out of range): choose {} to {}", option, value, lowest, highest));
  }
  return value;
}

std::size_t parse_word(std::string_view option, std::string_view text, std::span<const std::string_view> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == text) return i;
  }
  refuse_value(option, text, "unknown", fmt::format("choose one of {}", fmt::join(words, ", ")));
}

}  // namespace distattn::cli
