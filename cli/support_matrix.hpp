#pragma once
/// What is supported, asked of the code that decides: schedules by mask, backends by element type and head_dim.

#include <string>

namespace distattn::cli {

/// Two tables as text: "yes", or the number of the reason below them.
std::string support_matrix();

}  // namespace distattn::cli
