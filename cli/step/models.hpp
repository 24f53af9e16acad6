#pragma once
/// Models that predictions know by name.

#include <span>
#include <string_view>

#include "cli/step/model.hpp"

namespace distattn::step {

/// A built-in model.
struct NamedModel {
  std::string_view name;
  ModelShape shape;
  std::string_view source;  ///< where its sizes are from
};

std::span<const NamedModel> built_in_models();
/// A built-in model, or one that is spelt out: "layers=4,hidden=256,heads=4", with kv-heads (heads), ffn (8/3 hidden)
/// and vocab (256) where they are not the usual. Throws Error(usage) that lists the names.
ModelShape find_model(std::string_view name);

}  // namespace distattn::step
