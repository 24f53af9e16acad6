#include "cli/run/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cli/run/all_gather.hpp"
#include "cli/run/head_results.hpp"
#include "cli/run/inputs.hpp"
#include "cli/run/shared_oracle.hpp"
#include "distattn/choose.hpp"

namespace distattn::cli {
namespace {

/// Whether parts of results are sent in the wire's type.
bool results_travel(const AttentionPlan& plan, Passes passes) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!plan.has(pass) || (passes == Passes::forward && pass == Pass::backward)) continue;
    for (Rank rank = 0; rank < plan.ranks(); ++rank) {
      for (const Step& step : plan.program(pass, rank).steps) {
        for (const Op& op : step.ops) {
          if (std::holds_alternative<Convert>(op)) return true;
        }
      }
    }
  }
  return false;
}

/// A result of a rank, and which positions its rows are.
struct LocalRows {
  Result result;
  ConstTensorView rows;
  const std::vector<std::int64_t>& positions;
};

/// The rows of one sequence and of the heads from `first_head` on that the judge's problem has.
void judge_rows(const LocalRows& local, const Problem& one, std::int64_t b, std::int64_t first_head, Judge& judge) {
  const std::int64_t first = is_key_side(local.result) ? 0 : one.first_query();
  const std::int64_t heads = is_key_side(local.result) ? one.kv_heads : one.heads;
  for (std::int64_t i = 0; i < std::ssize(local.positions); ++i) {
    const std::int64_t token = local.positions[index(i)] - first;
    for (std::int64_t h = 0; h < heads; ++h) {
      judge.add(local.result, 0, token, h, local.rows.row(b, i, first_head + h), local.rows.dtype);
    }
  }
}

void judge_rank(const RankTensors& local, const Sharding& sharding, const Problem& one, std::int64_t b,
                std::int64_t kv_head, Passes passes, Judge& judge) {
  const auto queries = positions(sharding.queries, local.rank()), keys = positions(sharding.keys, local.rank());
  const std::int64_t head = kv_head * one.heads;
  judge_rows({Result::o, local.o(), queries}, one, b, head, judge);
  judge_rows({Result::lse, local.lse(), queries}, one, b, head, judge);
  if (passes == Passes::forward) return;
  judge_rows({Result::dq, local.dq(), queries}, one, b, head, judge);
  judge_rows({Result::dk, local.dk(), keys}, one, b, kv_head, judge);
  if (!one.shared_kv) judge_rows({Result::dv, local.dv(), keys}, one, b, kv_head, judge);
}

std::string tokens_text(std::int64_t begin, std::int64_t end) {
  return end - begin == 1 ? fmt::format(", token {}", begin) : fmt::format(", tokens {} to {}", begin, end - 1);
}

/// Only what there are several of is named.
std::string where(Result result, const WorstPart& found, const Problem& problem, const MaskGroups& groups) {
  const bool keys = is_key_side(result);
  std::string text = name_of(result);
  if (result == Result::dsink_logits) return text + fmt::format(" of head {}", found.head);
  if (result == Result::max_logit) {
    return text + fmt::format(" of sequence {}, head {}", found.head / problem.heads, found.head % problem.heads);
  }
  if (problem.batch > 1) text += fmt::format(" of sequence {}", found.batch);
  const int heads = keys ? problem.kv_heads : problem.heads;
  if (heads > 1) {
    text += fmt::format("{}{}head {}", problem.batch > 1 ? ", " : " of ",
                        keys && problem.kv_heads != problem.heads ? "key " : "", found.head);
  }
  if (found.group >= 0 && groups.groups.size() > 1) {
    text += fmt::format(", {} {}", problem.mask.documents.empty() ? "group" : "document", found.group);
  }
  if (found.token >= 0) {
    const std::int64_t position = found.token + (keys ? 0 : problem.first_query());
    return text + tokens_text(position, position + 1);
  }
  if (found.group < 0) return text + (keys ? ", tokens that nothing sees" : ", tokens that see nothing");
  if (groups.groups.size() == 1) return text;
  const MaskGroups::Group& group = groups.groups[index(found.group)];
  const IndexRange& range = keys ? group.keys : group.queries;
  return text + tokens_text(range.begin, range.end);
}

/// Kernels divide by the weights at the end, so that sums pass what their average does not.
bool sums_overflow(const Comparison& compared, const Problem& problem) {
  const auto most = static_cast<double>(std::max(problem.seq_q, problem.seq_kv));
  return problem.accumulator() == DType::fp32 && compared.largest_exact * most > std::numeric_limits<float>::max();
}

/// Adds what some heads of one sequence should be. The gradients of sink logits are summed over sequences, whose errors
/// are independent of each other; largest scores are those of each sequence.
void add_heads(const ExpectedResult& expected, std::int64_t b, std::int64_t first_head, std::int64_t heads,
               ExpectedHeads& sinks, ExpectedHeads& tops) {
  for (std::size_t i = 0; i < expected.exact.dsink_logits.size(); ++i) {
    const std::size_t head = index(first_head) + i;
    sinks.exact[head] += expected.exact.dsink_logits[i];
    sinks.allowed[head] = std::hypot(sinks.allowed[head], expected.dsink_logits.allowed[i]);
    sinks.terms[head] = std::hypot(sinks.terms[head], expected.dsink_logits.terms[i]);
  }
  for (std::size_t i = 0; i < expected.exact.max_logit.size(); ++i) {
    const std::size_t at = index(b * heads + first_head) + i;
    tops.exact[at] = expected.exact.max_logit[i];
    tops.allowed[at] = expected.max_logit.allowed[i];
  }
}

Errors errors_of(const std::array<Comparison, all_results.size()>& compared, const Problem& problem,
                 const MaskGroups& groups, Passes passes) {
  Errors errors;
  errors.backward = passes == Passes::both;
  errors.scores = problem.scores;
  errors.shared_kv = problem.shared_kv;
  for (const Result result : all_results) {
    if (!errors.has(result)) continue;
    const auto r = static_cast<std::size_t>(result);
    errors.results[r] = {compared[r].error(result),
                         compared[r].worst,
                         compared[r].wrong,
                         compared[r].largest_exact,
                         where(result, compared[r].worst, problem, groups),
                         sums_overflow(compared[r], problem)};
    errors.tolerance = std::max(errors.tolerance, compared[r].tolerance(result));
  }
  return errors;
}

}  // namespace

double Errors::largest(Pass pass) const {
  double most = 0;
  for (const Result result : all_results) {
    if (pass_of(result) == pass)
      most = std::max(most, of(result) / (is_logarithm(result) ? std::max(1.0, results[index(result)].magnitude) : 1));
  }
  return most;
}

bool Errors::within_tolerance(Pass pass) const { return worst(pass).worst.excess <= 1; }

std::int64_t Errors::wrong(Pass pass) const {
  std::int64_t sum = 0;
  for (const Result result : all_results) {
    if (pass_of(result) == pass) sum += results[index(result)].wrong;
  }
  return sum;
}

const ResultError& Errors::worst() const {
  const ResultError &forward = worst(Pass::forward), &back = worst(Pass::backward);
  return back.worst.excess > forward.worst.excess ? back : forward;
}

const ResultError& Errors::worst(Pass pass) const {
  const ResultError* most = nullptr;
  for (const Result result : all_results) {
    const ResultError& each = results[index(result)];
    if (pass_of(result) == pass && (most == nullptr || each.worst.excess > most->worst.excess)) most = &each;
  }
  return *most;
}

Errors check_results(World& world, const AttentionPlan& plan, const Inputs& inputs,
                     const std::vector<RankTensors>& here, Passes passes) {
  const Sharding& sharding = plan.outline(Pass::forward).sharding;
  const Problem& problem = sharding.problem;
  const MaskGroups groups = groups_of(problem);
  const int merges = plan.counts(Pass::forward).steps;  // a result goes through no more of them
  const Rounding rounding = rounding_of(problem, merges, results_travel(plan, passes));
  std::array<Comparison, all_results.size()> compared;
  SharedOracle oracle(world, problem, rounding, inputs, passes);
  ExpectedHeads sinks(index(problem.heads)), tops(index(problem.batch * problem.heads));
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      const Problem one = head_group(problem, kv_head);
      const ExpectedResult expected = oracle.next();
      add_heads(expected, b, kv_head * one.heads, problem.heads, sinks, tops);
      Judge judge(one, groups, expected);
      for (const RankTensors& local : here) judge_rank(local, sharding, one, b, kv_head, passes, judge);
      if (!world.in_process()) {
        const auto all = all_gather<Judge::Part>(world, judge.parts());
        judge.clear();
        judge.add(all);
      }
      for (const Result result : row_results) {
        Comparison each = judge.comparison(result);
        each.worst.batch = b;
        each.worst.head += is_key_side(result) ? kv_head : kv_head * one.heads;
        compared[index(result)].add(each);
      }
    }
  }
  if (problem.scores.sink_logits && passes == Passes::both) {
    compared[index(Result::dsink_logits)] = compare_heads(Result::dsink_logits, sink_gradients(world, here), sinks);
  }
  if (problem.scores.max_logit) {
    compared[index(Result::max_logit)] = compare_heads(Result::max_logit, max_logits(world, here), tops);
  }
  return errors_of(compared, problem, groups, passes);
}

std::string text_of(const ResultError& wrong) {
  if (!std::isfinite(wrong.worst.excess)) {
    return fmt::format("{}: an infinity, a NaN or a number is not what it should be{}", wrong.where,
                       wrong.overflows ? "; sums of such large numbers overflow fp32, unless inputs are divided by a "
                                         "power of 2"
                                       : "");
  }
  return fmt::format("{}: an error of {:.2e} is beyond the tolerance of {:.2e}", wrong.where, wrong.worst.error,
                     wrong.worst.tolerance);
}

ErrorRow row_of(const Errors& errors) {
  ErrorRow row;
  row.has_sink_logits = errors.scores.sink_logits;
  row.has_max_logit = errors.scores.max_logit;
  row.o = errors.of(Result::o);
  row.lse = errors.of(Result::lse);
  if (errors.has(Result::max_logit)) row.max_logit = errors.of(Result::max_logit);
  row.tolerance = errors.tolerance;
  if (!errors.backward) return row;
  row.dq = errors.of(Result::dq);
  row.dk = errors.of(Result::dk);
  if (errors.has(Result::dv)) row.dv = errors.of(Result::dv);
  if (errors.has(Result::dsink_logits)) row.dsink_logits = errors.of(Result::dsink_logits);
  return row;
}

std::vector<ErrorPart> parts_of(const Errors& errors) {
  std::vector<ErrorPart> parts;
  const auto known = [](std::int64_t index) { return index < 0 ? std::nullopt : std::optional(index); };
  for (const Result result : all_results) {
    if (!errors.has(result)) continue;
    const auto& [error, worst, wrong, magnitude, where, overflows] = errors.results[index(result)];
    parts.push_back({name_of(result), where, worst.batch, worst.head, known(worst.group), known(worst.token),
                     worst.error, worst.tolerance, worst.excess <= 1});
  }
  return parts;
}

}  // namespace distattn::cli
