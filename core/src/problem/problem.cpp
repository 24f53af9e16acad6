#include "distattn/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <string_view>

#include <fmt/core.h>

#include "distattn/error.hpp"

namespace distattn {
namespace {

/// Tokens of a tile's sides are counted in 32 bits, its pairs in 64.
constexpr std::int64_t longest_sequence = std::numeric_limits<std::int32_t>::max();

void check_count(std::string_view what, std::int64_t value) {
  if (value < 1) refuse(fmt::format("{} is {} (a problem has at least one): give 1 or more", what, value));
}

void check_dim(std::string_view what, int dim, const std::string& with_padding = "") {
  constexpr int most = 576;
  if (8 <= dim && dim <= most && dim % 8 == 0) return;
  const std::string advice = dim > most ? fmt::format("choose {} or less", most)
                                        : fmt::format("pad it to {} with zeros{}", dim < 8 ? 8 : (dim + 7) / 8 * 8,
                                                      dim > 0 ? with_padding : "");
  refuse(fmt::format("{} is {} (kernels take 8 to {}, a multiple of 8): {}", what, dim, most, advice));
}

/// Zeros change no score, but the default scale changes with the number of elements.
std::string scale_of_unpadded(const Problem& problem) {
  if (problem.scores.scale != 0) return "";
  return fmt::format(" and give scale {} (1/sqrt({}): the default follows the padded size)", problem.softmax_scale(),
                     problem.head_dim);
}

void check_scores(const Scores& scores, DType accumulator) {
  const double scale = scores.scale, cap = scores.softcap;
  constexpr double largest_cap = 1e30, least_cap = 1e-30;  // kernels divide by it, and multiply by its square
  if (!std::isfinite(scale)) refuse("scale is not finite (it multiplies every score): give a number");
  if (cap != 0 && !(least_cap <= cap && cap <= largest_cap))
    refuse(fmt::format("softcap is {} (scores lie between it and its negative): choose 1e-30 to 1e30, or 0 for none",
                       cap));
  if (!(0 <= scores.dropout && scores.dropout < 1))
    refuse(fmt::format("dropout is {} (the probability that a weight is dropped): choose 0 or more, and less than 1",
                       scores.dropout));
  // Kernels raise 2, not e, to the scores: the scale times log2(e) must be a number too.
  constexpr double largest = std::numeric_limits<float>::max() / std::numbers::log2e;
  constexpr double least = std::numeric_limits<float>::min();
  if (accumulator == DType::fp64 || scale == 0) return;
  const double size = std::abs(scale);
  if (least <= size && size <= largest) return;
  refuse(fmt::format("scale is {} (scores are computed in fp32, which does not hold it): choose {}", scale,
                     size > largest ? "2e38 or less" : "1.2e-38 or more"));
}

/// Times any distance of two positions they are numbers, and so are scores with them.
void check_slopes(const Problem& problem) {
  const std::vector<double>& slopes = problem.alibi_slopes;
  constexpr double most = 1e20F;  // rounded as files of fp32 have it
  if (slopes.empty()) return;
  if (std::ssize(slopes) != problem.heads) {
    refuse(fmt::format("{} slopes of a position bias for {} heads (each head has one): give as many", slopes.size(),
                       problem.heads));
  }
  for (std::size_t head = 0; head < slopes.size(); ++head) {
    if (std::abs(slopes[head]) <= most) continue;
    refuse(fmt::format("the slope of head {} is {} (it is multiplied by distances): choose -1e20 to 1e20", head,
                       slopes[head]));
  }
}

bool product_fits(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor > std::numeric_limits<std::int64_t>::max() / product) return false;
    product *= factor;
  }
  return true;
}

}  // namespace

void check(const Problem& problem) {
  check_count("batch", problem.batch);
  check_count("seq", problem.seq_q);
  check_count("seq-kv", problem.seq_kv);
  check_count("heads", problem.heads);
  check_count("kv-heads", problem.kv_heads);
  if (problem.heads % problem.kv_heads != 0)
    refuse(fmt::format(
        "{} heads on {} kv-heads (each key head serves as many query heads): choose kv-heads that divide heads",
        problem.heads, problem.kv_heads));
  check_dim("head-dim", problem.head_dim, scale_of_unpadded(problem));
  check_dim("value-dim", problem.value_dim);
  if (problem.shared_kv && problem.value_dim > problem.head_dim)
    refuse(fmt::format("values of {} in keys of {} (a value is the beginning of its key): choose value-dim {} or less",
                       problem.value_dim, problem.head_dim, problem.head_dim));
  if (problem.wire != DType::fp32 && problem.wire != DType::bf16 && problem.wire != problem.accumulator())
    refuse(fmt::format("wire type {} (partials and gradients travel as fp32 or bf16): choose one of these",
                       name_of(problem.wire)));
  check_scores(problem.scores, problem.accumulator());
  check_slopes(problem);
  const std::int64_t tokens = std::max(problem.seq_q, problem.seq_kv);
  const std::int64_t dim = std::max(problem.head_dim, problem.value_dim);
  if (tokens > longest_sequence)
    refuse(fmt::format("{} tokens (a sequence has {} at most): choose less", tokens, longest_sequence));
  if (!product_fits({problem.batch, tokens, problem.heads, 2 * dim, 8}))
    refuse(fmt::format("batch {} with {} tokens and {} heads (sizes overflow 63 bits): choose less", problem.batch,
                       tokens, problem.heads));
  check(problem.mask, problem.seq_kv);
}

std::vector<double> standard_alibi_slopes(int heads) {
  if (heads < 1) refuse(fmt::format("slopes of {} heads (each has one): give 1 or more", heads));
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<double> slopes;
  for (int i = 1; i <= power; ++i) slopes.push_back(std::exp2(-8.0 * i / power));
  for (int i = 1; std::ssize(slopes) < heads; i += 2) slopes.push_back(std::exp2(-4.0 * i / power));
  return slopes;
}

bool sees_future(const Problem& problem) {
  const Run queries{problem.first_query(), problem.seq_q, 1}, keys{0, problem.seq_kv, 1};
  for (Band band : bands_of(problem.mask)) {
    band.hi = std::min<std::int64_t>(band.hi, -1);
    if (touches(band, queries, keys)) return true;
  }
  return false;
}

}  // namespace distattn
