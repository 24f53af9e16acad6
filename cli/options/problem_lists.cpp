#include "cli/options/problem_lists.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "distattn/error.hpp"
#include "distattn/files.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t most_combinations = 10'000;

/// Every one of `all` with every value, if there are any.
template <class T, class Set>
void multiply(std::vector<ProblemOptions>& all, const std::vector<T>& values, Set set) {
  if (values.empty()) return;
  if (all.size() * values.size() > most_combinations) {
    refuse(
        fmt::format("more than {} shapes (every value of a list is combined with every value of the others): shorten "
                    "the lists",
                    most_combinations));
  }
  std::vector<ProblemOptions> products;
  for (const ProblemOptions& options : all) {
    for (const T& value : values) set(products.emplace_back(options), value);
  }
  all = std::move(products);
}

/// One that cannot be read is no reason to leave a combination out.
void check_files(const std::vector<ProblemOptions>& combinations) {
  std::set<std::string> masks;
  for (const ProblemOptions& options : combinations) {
    if (options.mask.file().empty() || !masks.insert(options.mask.mask).second) continue;
    read_mask(options.mask);
  }
}

}  // namespace

bool ProblemLists::is_empty() const {
  const auto lists = counts();
  return common.scores == Scores{} && common.sink_logits.empty() && common.alibi.empty() && !common.shared_kv &&
         common.mask == MaskOptions{} &&
         std::all_of(lists.begin(), lists.end(), [](const auto& list) { return list.second == 0; });
}

std::vector<std::pair<const char*, std::size_t>> ProblemLists::counts() const {
  return {{"--seq", seq.size()},
          {"--seq-kv", seq_kv.size()},
          {"--batch", batch.size()},
          {"--heads", heads.size()},
          {"--kv-heads", kv_heads.size()},
          {"--head-dim", head_dim.size()},
          {"--value-dim", value_dim.size()},
          {"--dtype", dtype.size()},
          {"--wire", wire.size()},
          {"--mask", mask.size() + masks_together.size()}};
}

std::string describe(const ProblemOptions& options) {
  const auto size = [](const std::optional<std::int64_t>& value, const std::optional<std::int64_t>& usual = {}) {
    const auto given = value ? value : usual;
    return given ? fmt::format("{}", *given) : std::string("?");
  };
  std::string text =
      fmt::format("{} {}x{}/{} {}/{}x{} {}", options.mask.mask, options.batch.value_or(1), size(options.seq),
                  size(options.seq_kv, options.seq), size(options.heads), size(options.kv_heads, options.heads),
                  size(options.head_dim), name_of(options.dtype.value_or(DType::fp32)));
  if (options.value_dim) text += fmt::format(" values {}", *options.value_dim);
  if (options.wire && *options.wire != DType::fp32) text += fmt::format(" wire {}", name_of(*options.wire));
  return text;
}

std::vector<ProblemOptions> combinations(const ProblemLists& lists) {
  std::vector<ProblemOptions> all = {lists.common};
  if (!lists.masks_together.empty()) all.front().mask.mask = lists.masks_together.front().mask;
  const auto assign = [](auto ProblemOptions::*member) {
    return [member](ProblemOptions& options, const auto& value) { options.*member = value; };
  };
  multiply(all, lists.mask, [](ProblemOptions& options, const std::string& value) { options.mask.mask = value; });
  multiply(all, lists.wire, assign(&ProblemOptions::wire));
  multiply(all, lists.dtype, assign(&ProblemOptions::dtype));
  multiply(all, lists.value_dim, assign(&ProblemOptions::value_dim));
  multiply(all, lists.head_dim, assign(&ProblemOptions::head_dim));
  multiply(all, lists.kv_heads, assign(&ProblemOptions::kv_heads));
  multiply(all, lists.heads, assign(&ProblemOptions::heads));
  multiply(all, lists.batch, assign(&ProblemOptions::batch));
  multiply(all, lists.seq_kv, assign(&ProblemOptions::seq_kv));
  multiply(all, lists.seq, assign(&ProblemOptions::seq));
  return all;
}

ProblemOptions only_combination(ProblemLists lists, const std::string& why) {
  lists.seq.clear();
  for (const auto& [option, count] : lists.counts()) {
    if (count > 1) refuse(fmt::format("{} has {} values ({}): give one", option, count, why));
  }
  return combinations(lists).front();
}

std::vector<LayerKind> kinds_of(const Problem& problem, const ProblemLists& lists) {
  if (lists.masks_together.empty()) return {{problem}};
  std::vector<LayerKind> kinds;
  for (const auto& [mask, weight] : lists.masks_together) {
    MaskOptions options = lists.common.mask;
    options.mask = mask;
    kinds.push_back({problem, weight});
    kinds.back().problem.mask = mask_of(options, problem.seq_kv, lists.common.seed);
    check(kinds.back().problem);
  }
  return kinds;
}

std::string text_of(const std::vector<WeightedMask>& masks) {
  std::string text = masks.empty() ? "" : " masks";
  for (const auto& [mask, weight] : masks) text += fmt::format(" {}*{}", mask, weight);
  return text;
}

Problems problems_of(const std::vector<ProblemOptions>& combinations) {
  if (combinations.size() == 1) return {{problem_of(combinations.front())}, {}};
  check_files(combinations);
  check_complete(combinations.front());
  Problems problems;
  for (const ProblemOptions& options : combinations) {
    try {
      problems.all.push_back(problem_of(options));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      problems.skipped.push_back(fmt::format("{}: {}", describe(options), error.what()));
    }
  }
  if (problems.all.empty()) {
    constexpr std::size_t named = 3;
    const std::size_t more = problems.skipped.size() - std::min(named, problems.skipped.size());
    problems.skipped.resize(problems.skipped.size() - more);
    refuse(fmt::format("no shape is left ({}{}): choose other values", fmt::join(problems.skipped, "; "),
                       more > 0 ? fmt::format("; and {} more", more) : ""));
  }
  return problems;
}

std::string describe(const Problem& problem) {
  std::string text =
      fmt::format("{} {}x{}/{} {}/{}x{} {}", problem.mask.name, problem.batch, problem.seq_q, problem.seq_kv,
                  problem.heads, problem.kv_heads, problem.head_dim, name_of(problem.dtype));
  if (problem.value_dim != problem.head_dim) text += fmt::format(" values {}", problem.value_dim);
  if (problem.shared_kv) text += " in keys";
  if (problem.wire != DType::fp32) text += fmt::format(" wire {}", name_of(problem.wire));
  if (!problem.alibi_slopes.empty()) text += " alibi";
  fields_of(problem.scores, [&](const char* name, const auto& value) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, bool>) {
      if (value) text += fmt::format(" {}", name);
    } else if (value != 0) {
      text += fmt::format(" {} {}", name, value);
    }
  });
  return text;
}

}  // namespace distattn::cli
