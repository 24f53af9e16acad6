#pragma once
/// Options that say what is to be computed: shape, element types, mask.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/problem.hpp"

namespace distattn::cli {

class App;
class Option;

/// Whether an option takes a list.
enum class Several : bool { no, yes };

struct MaskOptions {
  static constexpr std::string_view tree = "tree:";
  std::string mask = "causal";
  std::optional<std::vector<std::int64_t>> window;
  std::int64_t sinks = 0;
  std::optional<std::string> cu_seqlens;
  std::string documents;  ///< a corpus to draw them from; empty: none

  /// The file that the mask is read from; empty: none.
  std::string file() const { return is_tree() ? mask.substr(tree.size()) : mask.ends_with(".json") ? mask : ""; }
  bool is_tree() const { return mask.starts_with(tree); }
  /// What numbers list, not rules: it fits no other sequence.
  bool is_of_one_length() const { return !file().empty() || cu_seqlens.has_value(); }
  friend bool operator==(const MaskOptions&, const MaskOptions&) = default;
};

/// One of several masks on one layout, and how many layers have it.
struct WeightedMask {
  std::string mask;
  double weight = 1;
};

struct ProblemOptions {
  std::optional<std::int64_t> seq, seq_kv, batch, heads, kv_heads, head_dim, value_dim;
  std::optional<DType> dtype;
  std::optional<DType> wire;
  Scores scores;
  std::string sink_logits;  ///< where they come from; empty: none
  bool shared_kv = false;
  std::string alibi;  ///< standard, or the file of slopes; empty: none
  MaskOptions mask;
  std::uint64_t seed = 0;          ///< of drawn documents and random values
  std::uint64_t dropout_seed = 0;  ///< of dropped weights
};

/// Sizes of q, k and v.
struct Shape {
  std::int64_t batch = 1, seq_q = 0, seq_kv = 0;
  std::int64_t heads = 1, kv_heads = 1, head_dim = 0, value_dim = 0;
  bool shared_kv = false;  ///< v is the beginning of k
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Reads a named list of numbers from the input file: what @NAME stands for.
using NamedNumbers = std::function<std::vector<double>(const std::string& name)>;
/// Reads a named list of integers from the input file: what @NAME stands for.
using NamedIntegers = std::function<std::vector<std::int64_t>(const std::string& name)>;

void add_problem_options(App& app, ProblemOptions& options);
/// What makes scores of products and has no state.
void add_map_options(App& app, Scores& scores, std::string& alibi);
/// What --alibi says. Throws Error(usage) if a file has no slopes.
std::vector<double> slopes_of(const std::string& alibi, int heads);
/// --mask; what is no mask is refused at once.
void add_mask_option(App& app, std::string& mask);
/// --mask, given once: a list of which each is a problem; several times: masks on one layout, each with its weight.
void add_mask_option(App& app, std::vector<std::string>& list, std::vector<WeightedMask>& together);
/// --window, --global-keys, --cu-seqlens, --documents.
void add_window_options(App& app, MaskOptions& options);
/// All of them for one mask.
void add_mask_options(App& app, MaskOptions& options);
/// --seed, for commands that draw something.
Option* add_seed_option(App& app, ProblemOptions& options);

/// Throws Error(usage) for a size that is missing.
void check_complete(const ProblemOptions& options);

/// The shape that the options give, with this sequence length. Throws Error(usage) for one that is missing.
Shape shape_of(const ProblemOptions& options, std::int64_t seq);
Shape shape_of(const Problem& problem);
/// Refuses options that contradict a shape that files have.
void check_against(const ProblemOptions& options, const Shape& shape, const std::string& origin);

/// The mask that a file lists. Throws Error(usage) if it cannot be read.
Mask read_mask(const MaskOptions& options);

/// The mask for `seq_kv` keys, documents drawn from `seed`. Without `named`, @NAME is refused.
Mask mask_of(const MaskOptions& options, std::int64_t seq_kv, std::uint64_t seed, const NamedIntegers& named = {});

/// A checked problem.
Problem problem_of(const ProblemOptions& options, const Shape& shape, DType dtype, const NamedIntegers& named = {});
/// With the shape and the element type that the options say.
Problem problem_of(const ProblemOptions& options);

}  // namespace distattn::cli
