#pragma once
/// Models that predictions know by name.

#include <span>
#include <string_view>

#include "cli/step/model.hpp"

namespace distattn::step {

struct NamedModel {
  std::string_view name;
  ModelShape shape;
  std::string_view source;  ///< where its sizes are from
};

std::span<const NamedModel> built_in_models();
/// Throws Error(usage) that lists the names.
const NamedModel& find_model(std::string_view name);

}  // namespace distattn::step
