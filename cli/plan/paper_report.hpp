#pragma once
/// `plan --paper`: a paper's figures next to ours.

#include <string>

#include "cli/rows/plan.hpp"
#include "cli/tools/papers.hpp"

namespace distattn::cli {

std::vector<PaperFigure> figures_of(const PaperTable& table);
std::string paper_text(const PaperTable& table);

}  // namespace distattn::cli
