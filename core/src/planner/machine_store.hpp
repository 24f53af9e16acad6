#pragma once
/// The description of the machine that this process runs on.

#include <string_view>

#include "distattn/machine.hpp"

namespace distattn {

/// The embedded description that nominal_machine() starts from.
inline constexpr std::string_view nominal_file = "machines/nominal";

/// The stored calibration where there is one, else nominal figures.
Machine stored_or_nominal_machine();

}  // namespace distattn
