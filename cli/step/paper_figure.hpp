#pragma once
/// One figure of a training step that a paper's data file asks for.

#include <string>

#include "cli/tools/papers.hpp"

namespace distattn::step {

/// Computes a quantity, given as JSON (papers.hpp). Throws Error(usage) naming what it does not understand.
PaperValue paper_figure(const std::string& quantity);

}  // namespace distattn::step
