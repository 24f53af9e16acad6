#pragma once
/// Files that a command writes, next to those that it reads; pages.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/tools/text_writer.hpp"

namespace distattn {
class Page;
}

namespace distattn::cli {

class App;

/// Refuses to write a file that is read, by whatever name. An empty path is none.
void refuse_overwriting(const std::vector<std::filesystem::path>& read,
                        const std::vector<std::filesystem::path>& written);

/// The file of a page, next to files that are read, opened before anything is planned; nothing for an empty path.
std::optional<TextWriter> open_page(const std::string& html, const std::vector<std::filesystem::path>& read);

/// Whether both paths would be the same file, which need not be there.
bool is_one_place(const std::filesystem::path& a, const std::filesystem::path& b);

/// --html
void add_html_option(App& app, std::string& html);

/// Says which passes of a page were drawn without their details.
void note_coarser(const Page& page);

}  // namespace distattn::cli
