#include "cli/options/problem_options.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <span>

#include "cli/options/option.hpp"
#include "cli/options/problem_lists.hpp"
#include "cli/options/values.hpp"
#include "cli/tools/arrays.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 4> dtype_names = {"fp64", "fp32", "bf16", "fp16"};
constexpr std::array<std::string_view, 2> wire_names = {"fp32", "bf16"};

std::int64_t positive(std::string_view option, std::int64_t value) {
  return within(option, value, 1, std::numeric_limits<std::int64_t>::max());
}

// An option of one value or of a list, as what it is read into has one or several.
using Size = std::optional<std::int64_t>;
using Sizes = std::vector<std::int64_t>;

void add_size(App& app, const char* name, Size& into, const char* help, Place place = Group::problem) {
  const auto parse = [](std::string_view option, std::string_view text) {
    return positive(option, parse_size(option, text));
  };
  add_value(app, name, into, parse, help, "SIZE", place);
}

void add_size(App& app, const char* name, Sizes& into, const char* help, Place place = Group::problem) {
  const auto parse = [](std::string_view option, std::string_view text) {
    auto values = parse_sizes(option, text);
    for (const std::int64_t value : values) positive(option, value);
    return values;
  };
  add_value(app, name, into, parse, help, "SIZES", place);
}

using Names = std::span<const std::string_view>;

/// One of `names`, which are some of dtype_names.
DType parse_dtype(std::string_view option, std::string_view text, Names names) {
  parse_word(option, text, names);
  return static_cast<DType>(parse_word(option, text, dtype_names));
}

void add_dtype(App& app, const char* name, std::optional<DType>& into, const char* help, Names names, Place place) {
  const auto parse = [names](std::string_view option, std::string_view text) {
    return parse_dtype(option, text, names);
  };
  add_value(app, name, into, parse, help, one_of(names), place);
}

void add_dtype(App& app, const char* name, std::vector<DType>& into, const char* help, Names names, Place place) {
  const auto parse = [names](std::string_view option, std::string_view text) {
    std::vector<DType> values;
    for (const std::string& item : parse_list(option, text)) values.push_back(parse_dtype(option, item, names));
    return values;
  };
  add_value(app, name, into, parse, help, some_of(names), place);
}

/// Of ProblemOptions or ProblemLists.
template <class Options>
void add_shape_options(App& app, Options& options) {
  add_size(app, "--seq", options.seq, "Queries, and keys unless --seq-kv says otherwise");
  add_size(app, "--seq-kv", options.seq_kv, "Keys (default: --seq)");
  add_size(app, "--batch", options.batch, "Sequences (default 1)");
  add_size(app, "--heads", options.heads, "Query heads");
  add_size(app, "--kv-heads", options.kv_heads, "Key and value heads (default: --heads)");
  add_size(app, "--head-dim", options.head_dim, "Dimension of a head's queries and keys");
  add_size(app, "--value-dim", options.value_dim, "Dimension of a head's values (default: --head-dim)",
           rarely(Group::problem));
  add_dtype(app, "--dtype", options.dtype, "Element type of q, k and v (default fp32)", dtype_names, Group::problem);
  add_dtype(app, "--wire", options.wire, "Element type of partial results in messages (default fp32)", wire_names,
            rarely(Group::problem));
}

constexpr std::string_view standard_slopes = "standard";

std::string parse_alibi(std::string_view option, std::string_view text) {
  if (text == standard_slopes || text.ends_with(".npy")) return std::string(text);
  refuse(fmt::format("{} {} (unknown): choose one of standard, FILE.npy", option, text));
}

void add_score_options(App& app, ProblemOptions& options) {
  Scores& scores = options.scores;
  const auto parse_scale = [](std::string_view option, std::string_view text) {
    const double value = parse_number(option, text);
    if (value == 0) refuse("--scale 0 (every score would be 0): leave it out for 1/sqrt(head-dim)");
    return value;
  };
  add_value(app, "--scale", scores.scale, parse_scale, "Factor of the scores (default 1/sqrt(head-dim))", "NUMBER",
            rarely(Group::problem));
  add_map_options(app, scores, options.alibi);
  const auto parse_probability = [](std::string_view option, std::string_view text) {
    const double value = parse_number(option, text);
    if (!(0 <= value && value < 1)) {
      refuse(fmt::format("{} {} (the probability that a weight is dropped): give 0 or more, and less than 1", option,
                         text));
    }
    return value;
  };
  const auto parse_seed = [](std::string_view option, std::string_view text) {
    return static_cast<std::uint64_t>(parse_size(option, text));
  };
  auto* const dropout = add_value(app, "--dropout", scores.dropout, parse_probability,
                                  "Drops each weight with this probability, the same ones on any number of ranks", "P",
                                  rarely(Group::problem));
  add_value(app, "--dropout-seed", options.dropout_seed, parse_seed, "Seed of dropped weights (default 0)", "SIZE",
            rarely(Group::problem))
      ->needs(dropout);
  app.add_flag("--shared-kv", options.shared_kv, "Values are the first --value-dim numbers of keys, as in absorbed MLA",
               rarely(Group::problem));
  app.add_flag("--max-logit", scores.max_logit, "Also gives the largest score of each head", rarely(Group::problem));
}

std::int64_t required(const std::optional<std::int64_t>& value, const char* option) {
  if (!value) refuse(fmt::format("{} is missing (the shape is not complete): add it", option));
  return *value;
}

void check_one(const std::optional<std::int64_t>& given, std::int64_t actual, const char* option,
               const std::string& origin) {
  if (given && *given != actual) {
    refuse(fmt::format("{} {} contradicts {} (which has {}): leave the option out", option, *given, origin, actual));
  }
}

int as_int(const char* what, std::int64_t value) {
  return static_cast<int>(within(what, value, 1, std::numeric_limits<int>::max()));
}

}  // namespace

void add_map_options(App& app, Scores& scores, std::string& alibi) {
  const auto parse_cap = [](std::string_view option, std::string_view text) {
    const double value = parse_number(option, text);
    if (!(value > 0))
      refuse(fmt::format("--softcap {} (scores lie between it and its negative): give more than 0", text));
    return value;
  };
  add_value(app, "--softcap", scores.softcap, parse_cap, "Scores become C tanh(score / C) (default: they do not)", "C",
            rarely(Group::problem));
  add_value(app, "--alibi", alibi, parse_alibi,
            "Adds slope (k - q) to the scores of each head: the usual slopes, or a list of them", "standard|FILE.npy",
            rarely(Group::problem));
}

std::vector<double> slopes_of(const std::string& alibi, int heads) {
  if (alibi.empty()) return {};
  if (alibi == standard_slopes) return standard_alibi_slopes(heads);
  std::vector<double> slopes = read_npy(alibi).numbers();
  if (slopes.empty())
    refuse(fmt::format("{} has 0 slopes (there are {} query heads): give each head one", alibi, heads));
  return slopes;
}

void add_problem_options(App& app, ProblemOptions& options) {
  add_shape_options(app, options);
  add_score_options(app, options);
  add_mask_options(app, options.mask);
}

void add_problem_options(App& app, ProblemLists& lists) {
  add_shape_options(app, lists);
  add_score_options(app, lists.common);
  add_mask_option(app, lists.mask, lists.masks_together);
  add_window_options(app, lists.common.mask);
}

Option* add_seed_option(App& app, ProblemOptions& options) {
  const auto parse_seed = [](std::string_view option, std::string_view text) {
    return static_cast<std::uint64_t>(parse_size(option, text));
  };
  return add_value(app, "--seed", options.seed, parse_seed, "Seed of random values and drawn documents (default 0)",
                   "SIZE", Group::input);
}

Shape shape_of(const ProblemOptions& options, std::int64_t seq) {
  Shape shape;
  shape.batch = options.batch.value_or(1);
  shape.seq_q = seq;
  shape.seq_kv = options.seq_kv.value_or(seq);
  shape.heads = required(options.heads, "--heads");
  shape.kv_heads = options.kv_heads.value_or(shape.heads);
  shape.head_dim = required(options.head_dim, "--head-dim");
  shape.value_dim = options.value_dim.value_or(shape.head_dim);
  shape.shared_kv = options.shared_kv;
  return shape;
}

Shape shape_of(const Problem& problem) {
  return {problem.batch,    problem.seq_q,    problem.seq_kv,    problem.heads,
          problem.kv_heads, problem.head_dim, problem.value_dim, problem.shared_kv};
}

void check_against(const ProblemOptions& options, const Shape& shape, const std::string& origin) {
  check_one(options.seq, shape.seq_q, "--seq", origin);
  check_one(options.seq_kv, shape.seq_kv, "--seq-kv", origin);
  check_one(options.batch, shape.batch, "--batch", origin);
  check_one(options.heads, shape.heads, "--heads", origin);
  check_one(options.kv_heads, shape.kv_heads, "--kv-heads", origin);
  check_one(options.head_dim, shape.head_dim, "--head-dim", origin);
  check_one(options.value_dim, shape.value_dim, "--value-dim", origin);
}

Problem problem_of(const ProblemOptions& options, const Shape& shape, DType dtype, const NamedIntegers& named) {
  Problem problem;
  problem.batch = shape.batch;
  problem.seq_q = shape.seq_q;
  problem.seq_kv = shape.seq_kv;
  problem.heads = as_int("heads", shape.heads);
  problem.kv_heads = as_int("kv-heads", shape.kv_heads);
  problem.head_dim = as_int("head-dim", shape.head_dim);
  problem.value_dim = as_int("value-dim", shape.value_dim);
  problem.shared_kv = shape.shared_kv;
  problem.dtype = dtype;
  if (options.wire && dtype == DType::fp64) refuse("--wire with fp64 (partials of fp64 travel as fp64): leave it out");
  problem.wire = options.wire.value_or(problem.wire);
  problem.scores = options.scores;
  problem.scores.sink_logits = !options.sink_logits.empty();
  problem.alibi_slopes = slopes_of(options.alibi, problem.heads);
  check(problem);  // sizes first: a mask may be as large as the sequence
  problem.mask = mask_of(options.mask, shape.seq_kv, options.seed, named);
  check(problem);
  return problem;
}

void check_complete(const ProblemOptions& options) { shape_of(options, required(options.seq, "--seq")); }

Problem problem_of(const ProblemOptions& options) {
  check_complete(options);
  const Shape shape = shape_of(options, *options.seq);
  return problem_of(options, shape, options.dtype.value_or(DType::fp32));
}

}  // namespace distattn::cli
