#include "cli/run/input_options.hpp"

#include <fmt/format.h>

#include "cli/options/option.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

using SharedValueDim = std::optional<std::int64_t>;

Source from_tensors(const std::string& path, bool with_backward, SharedValueDim shared) {
  auto arrays = read_safetensors(path);
  const auto found = [arrays, path](const std::string& name) {
    const auto array = arrays.find(name);
    if (array == arrays.end()) refuse(fmt::format("@{} (not a tensor of {}): name one of its tensors", name, path));
    return array->second;
  };
  if (!with_backward) arrays.erase("do");
  return {Inputs::from_arrays(std::move(arrays), shared),
          [found](const std::string& name) { return found(name).integers(); },
          [found](const std::string& name) { return found(name).numbers(); }};
}

Source from_npy(const std::map<std::string, std::string>& paths, bool with_backward, SharedValueDim shared) {
  if (paths.contains("do") && !with_backward) {
    refuse("--do without --backward (a forward pass reads no gradient): add --backward or leave it out");
  }
  std::map<std::string, StoredArray> arrays;
  for (const auto& [name, path] : paths) arrays.emplace(name, read_npy(path));
  return {Inputs::from_arrays(std::move(arrays), shared), {}, {}};
}

}  // namespace

void add_input_options(App& app, InputOptions& options) {
  for (const std::string name : {"q", "k", "v", "do"}) {
    const auto take = [&options, name](const std::string& path) {
      options.arrays.emplace(name, not_empty("--" + name, path));
    };
    app.add_text("--" + name, take, fmt::format("{} as .npy: [batch,] sequence, heads, head_dim", name), "FILE",
                 Group::input);
  }
  add_value(app, "--tensors", options.tensors, as_text, "q, k, v and do of a .safetensors file", "FILE", Group::input);
  app.add_flag("--random", options.random, "Normally distributed values of the given shape", Group::input);
}

Source open_source(const InputOptions& options, const std::function<Shape()>& random_shape, std::uint64_t seed,
                   bool with_backward, std::optional<std::int64_t> shared_value_dim) {
  const int kinds = (options.arrays.empty() ? 0 : 1) + (options.tensors.empty() ? 0 : 1) + (options.random ? 1 : 0);
  if (kinds != 1) {
    refuse(fmt::format("{} (one kind is needed): give --q --k --v, or --tensors, or --random with a shape",
                       kinds == 0 ? "no input" : "several kinds of input"));
  }
  if (options.random) return {Inputs::random(random_shape(), seed), {}, {}};
  return options.tensors.empty() ? from_npy(options.arrays, with_backward, shared_value_dim)
                                 : from_tensors(options.tensors, with_backward, shared_value_dim);
}

}  // namespace distattn::cli
