#pragma once
/// The description of the machine that this process runs on.

#include <string>
#include <string_view>

#include "distattn/machine.hpp"

namespace distattn {

/// The embedded description that nominal_machine() starts from.
inline constexpr std::string_view nominal_file = "machines/nominal";

/// The name of a calibration's file, whatever characters the host's name has.
std::string calibration_name(std::string_view host, int cores);

/// The stored calibration where there is one that can be used, else nominal figures.
Machine stored_or_nominal_machine();

}  // namespace distattn
