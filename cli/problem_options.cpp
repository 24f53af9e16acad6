#include "problem_options.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "distattn/error.hpp"
#include "option.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 4> dtype_names = {"fp64", "fp32", "bf16", "fp16"};
constexpr std::array<std::string_view, 2> wire_names = {"fp32", "bf16"};

DType parse_dtype(std::string_view option, std::string_view text) {
  return static_cast<DType>(parse_word(option, text, dtype_names));
}

DType parse_wire(std::string_view option, std::string_view text) {
  return parse_word(option, text, wire_names) == 0 ? DType::fp32 : DType::bf16;
}

std::int64_t parse_positive(std::string_view option, std::string_view text) {
  return within(option, parse_size(option, text), 1, std::numeric_limits<std::int64_t>::max());
}

double parse_scale(std::string_view option, std::string_view text) {
  const double scale = parse_number(option, text);
  if (scale == 0) refuse("--scale 0 (every score would be 0) leave it out for 1/sqrt(head-dim)");
  return scale;
}

std::int64_t required(const std::optional<std::int64_t>& value, const char* option) {
  if (!value) refuse(fmt::format("{} is missing (the shape is not complete) add it", option));
  return *value;
}

void check_one(const std::optional<std::int64_t>& given, std::int64_t actual, const char* option,
               const std::string& origin) {
  if (given && *given != actual) {
    refuse(fmt::format("{} {} contradicts {} (which has {}) leave the option out", option, *given, origin, actual));
  }
}

int as_int(const char* what, std::int64_t value) {
  return static_cast<int>(within(what, value, 1, std::numeric_limits<int>::max()));
}

}  // namespace

void add_problem_options(App& app, ProblemOptions& options, Several seq) {
  const auto parse_seq = [seq](std::string_view option, std::string_view text) {
    if (seq == Several::no) return std::vector{parse_positive(option, text)};
    auto values = parse_sizes(option, text);
    for (const std::int64_t value : values) within(option, value, 1, std::numeric_limits<std::int64_t>::max());
    return values;
  };
  add_value(app, "--seq", options.seq, parse_seq, "Queries, and keys unless --seq-kv says otherwise",
            seq == Several::yes ? "SIZES" : "SIZE");
  add_value(app, "--seq-kv", options.seq_kv, parse_positive, "Keys (default: --seq)", "SIZE");
  add_value(app, "--batch", options.batch, parse_positive, "Sequences (default 1)", "SIZE");
  add_value(app, "--heads", options.heads, parse_positive, "Query heads", "SIZE");
  add_value(app, "--kv-heads", options.kv_heads, parse_positive, "Key and value heads (default: --heads)", "SIZE");
  add_value(app, "--head-dim", options.head_dim, parse_positive, "Elements of a head", "SIZE");
  add_value(app, "--value-dim", options.value_dim, parse_positive, "The same of values (default: --head-dim)", "SIZE");
  add_value(app, "--dtype", options.dtype, parse_dtype, "Computed with (default fp32)", one_of(dtype_names));
  add_value(app, "--wire", options.wire, parse_wire, "Partials travel as (default fp32)", one_of(wire_names));
  add_value(app, "--scale", options.scale, parse_scale, "Of scores (default 1/sqrt(head-dim))", "NUMBER");
  add_mask_options(app, options.mask);
}

Option* add_seed_option(App& app, ProblemOptions& options) {
  const auto parse_seed = [](std::string_view option, std::string_view text) {
    return static_cast<std::uint64_t>(parse_size(option, text));
  };
  return add_value(app, "--seed", options.seed, parse_seed, "Of random values and drawn documents (default 0)", "SIZE");
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
  return shape;
}

Shape shape_of(const Problem& problem) {
  return {problem.batch,    problem.seq_q,    problem.seq_kv,   problem.heads,
          problem.kv_heads, problem.head_dim, problem.value_dim};
}

void check_against(const ProblemOptions& options, const Shape& shape, const std::string& origin) {
  if (!options.seq.empty()) check_one(options.seq.front(), shape.seq_q, "--seq", origin);
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
  problem.dtype = dtype;
  if (options.wire && dtype == DType::fp64) refuse("--wire with fp64 (partials of fp64 travel as fp64) leave it out");
  problem.wire = options.wire.value_or(problem.wire);
  problem.scale = options.scale;
  check(problem);  // sizes first: a mask may be as large as the sequence
  problem.mask = mask_of(options.mask, shape.seq_kv, options.seed, named);
  check(problem);
  return problem;
}

}  // namespace distattn::cli
