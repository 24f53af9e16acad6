#include "cli/run/sink_logits.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "cli/options/option.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::string_view random_word = "random", file_end = ".npy";

std::string parse_source(std::string_view option, std::string_view text) {
  if (text == random_word || text.starts_with('@') || text.ends_with(file_end)) return std::string(text);
  refuse(fmt::format("{} {} (unknown): choose one of FILE.npy, @NAME, random", option, text));
}

std::vector<double> read_logits(const std::string& text, const NamedNumbers& named) {
  if (!text.starts_with('@')) return read_npy(text).numbers();
  if (!named) refuse(fmt::format("--sink-logits {} (no input file holds it): give a .npy file, or random", text));
  return named(text.substr(1));
}

/// The numbers of a file or of the input, one for each head, as sums of `dtype` hold them.
std::vector<double> logits_of(const std::string& text, std::int64_t heads, DType dtype, const NamedNumbers& named) {
  std::vector<double> logits = read_logits(text, named);
  if (std::ssize(logits) != heads) {
    refuse(fmt::format("--sink-logits {} has {} numbers (there are {} query heads): give one for each", text,
                       logits.size(), heads));
  }
  const bool in_fp64 = accumulator_of(dtype) == DType::fp64;
  for (std::size_t head = 0; head < logits.size(); ++head) {
    if (!std::isfinite(logits[head])) {
      refuse(fmt::format("--sink-logits {} has {} for head {} (a logit is a finite number): give numbers", text,
                         logits[head], head));
    }
    if (in_fp64 || std::abs(logits[head]) <= std::numeric_limits<float>::max()) continue;
    refuse(fmt::format("--sink-logits {} has {} for head {} (sums in fp32 hold no such number): give at most 3e38",
                       text, logits[head], head));
  }
  return logits;
}

}  // namespace

void add_sink_logits_option(App& app, std::string& text) {
  add_value(app, "--sink-logits", text, parse_source,
            "A logit a head: each softmax has one more term e^logit without a value", "FILE.npy|@NAME|random",
            rarely(Group::input));
}

void bring_sink_logits(Inputs& inputs, const std::string& text, DType dtype, std::uint64_t seed,
                       const NamedNumbers& named) {
  if (text.empty()) return;
  if (text == random_word) return inputs.draw_sink_logits(seed);
  inputs.set_sink_logits(logits_of(text, inputs.shape().heads, dtype, named));
}

void check_sink_logits(const std::string& text, const Problem& problem) {
  if (text.empty() || text == random_word) return;
  logits_of(text, problem.heads, problem.dtype, {});
}

}  // namespace distattn::cli
