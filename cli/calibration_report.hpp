#pragma once
/// What a calibration measured, for people.

#include <string>

#include "distattn/machine.hpp"

namespace distattn::cli {

std::string text_of(const Machine& machine, int head_dim);

}  // namespace distattn::cli
