#pragma once
/// Options that say where q, k, v and do come from.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/run/inputs.hpp"

namespace distattn::cli {

class App;

struct InputOptions {
  std::map<std::string, std::string> arrays;  ///< q, k, v, do: paths of .npy
  std::string tensors;
  bool random = false;
};

/// Inputs, and what @NAME means in them.
struct Source {
  Inputs inputs;
  NamedIntegers named;
  NamedNumbers named_numbers;
};

void add_input_options(App& app, InputOptions& options);

/// Opens the files, or draws from `seed` values of the shape that `random_shape` gives. Throws Error(usage) unless
/// exactly one kind of input was given, and for a `do` that no backward pass reads. `shared_value_dim`: see
/// Inputs::from_arrays().
Source open_source(const InputOptions& options, const std::function<Shape()>& random_shape, std::uint64_t seed,
                   bool with_backward, std::optional<std::int64_t> shared_value_dim);

}  // namespace distattn::cli
