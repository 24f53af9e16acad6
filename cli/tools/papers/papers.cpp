#include "cli/tools/papers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/tools/embedded.hpp"
#include "cli/tools/papers/paper_quantity.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

constexpr std::string_view paper_folder = "papers/";

}  // namespace

std::vector<std::string> paper_names() {
  std::vector<std::string> names;
  for (const tools::EmbeddedFile& file : tools::embedded_files()) {
    if (file.name.starts_with(paper_folder)) names.emplace_back(file.name.substr(paper_folder.size()));
  }
  return names;
}

PaperTable compare_with_paper(const std::string& name) {
  const auto text = tools::embedded_file(std::string(paper_folder) + name);
  if (!text)
    refuse(fmt::format("no paper '{}' (its figures are not here): use {}", name, fmt::join(paper_names(), ", ")));
  const std::string origin = "paper " + name;
  return read_paper(*text, origin, [&](const std::string& quantity) { return paper_quantity(quantity, origin); });
}

}  // namespace distattn
