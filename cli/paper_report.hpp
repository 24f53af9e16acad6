#pragma once
/// `plan --paper`: a paper's figures beside ours.

#include <string>

#include "distattn/papers.hpp"
#include "output.hpp"

namespace distattn::cli {

/// An array, one object a figure; null where nothing was published.
Json paper_json(const PaperTable& table);
std::string paper_text(const PaperTable& table);

}  // namespace distattn::cli
