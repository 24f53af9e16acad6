#include "cli/step/papers.hpp"

#include "cli/step/embedded.hpp"
#include "cli/step/paper_figure.hpp"
#include "distattn/error.hpp"

namespace distattn::step {

PaperTable compare_steps_with_paper(const std::string& name) {
  std::string known;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return read_paper(file.text, "steps of paper " + name, paper_figure);
    known += (known.empty() ? "" : ", ") + std::string(file.name);
  }
  refuse("no paper '" + name + "' (its steps are not here): use " + known);
}

}  // namespace distattn::step
