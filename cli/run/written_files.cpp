#include "cli/run/written_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>

#include "cli/options/option.hpp"
#include "cli/terminal/console.hpp"
#include "cli/tools/page.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// Where a path leads. Whoever writes there says why it cannot be written.
std::filesystem::path place_of(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path known = std::filesystem::weakly_canonical(std::filesystem::absolute(path), failed);
  return failed ? path : known;
}

}  // namespace

void refuse_overwriting(const std::vector<std::filesystem::path>& read,
                        const std::vector<std::filesystem::path>& written) {
  for (const auto& output : written) {
    for (const auto& input : read) {
      std::error_code missing;  // what is not there cannot be overwritten
      if (!std::filesystem::equivalent(input, output, missing)) continue;
      refuse(fmt::format("{} would be overwritten (it is read as {}): write to another place", output.string(),
                         input.string()));
    }
  }
}

std::optional<TextWriter> open_page(const std::string& html, const std::vector<std::filesystem::path>& read) {
  if (html.empty()) return std::nullopt;
  refuse_overwriting(read, {html});
  return TextWriter(html);
}

bool is_one_place(const std::filesystem::path& a, const std::filesystem::path& b) { return place_of(a) == place_of(b); }

void add_html_option(App& app, std::string& html) {
  add_value(app, "--html", html, as_text, "Write a page to look at: mask, layout, timelines", "FILE", Group::output);
}

void note_coarser(const Page& page) {
  if (page.coarser().empty()) return;
  note(
      fmt::format("the page shows cells and joined steps instead of tiles, steps and messages (it would be too large) "
                  "for {}",
                  fmt::join(page.coarser(), ", ")));
}

}  // namespace distattn::cli
