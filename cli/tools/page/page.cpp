#include "cli/tools/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/tools/embedded.hpp"
#include "cli/tools/page/pass_data.hpp"
#include "cli/tools/page/timeline_data.hpp"

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

/// Digits, comma and brackets; less than the mean, so that all that may fit is tried.
constexpr std::size_t bytes_of_number = 4;

/// A script ends where "</script" stands, whatever surrounds it; names may be no UTF-8.
std::string script_safe(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

Json table_data(const PageTable& table) {
  Json heads = Json::array(), rows = Json::array();
  for (const auto& head : table.heads) heads.push_back({head.text, head.meaning});
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const auto& cell : row.cells) {
      cells.push_back(cell.value ? Json({cell.text, shown_digits(*cell.value)}) : Json(cell.text));
    }
    rows.push_back({{"schedule", row.schedule ? Json(*row.schedule) : Json(nullptr)},
                    {"pass", name_of(row.pass)},
                    {"cells", std::move(cells)}});
  }
  return {{"heads", std::move(heads)}, {"rows", std::move(rows)}};
}

std::string_view part(std::string_view name) { return *tools::embedded_file(name); }

/// The text with what each {{name}} stands for; nothing is looked for in what is put in.
template <class Of>
std::string filled(std::string_view text, Of of) {
  std::string out;
  for (;;) {
    const std::size_t begin = text.find("{{");
    if (begin == std::string_view::npos) return out.append(text);
    const std::size_t end = text.find("}}", begin);
    out.append(text.substr(0, begin)).append(of(text.substr(begin + 2, end - begin - 2)));
    text.remove_prefix(end + 2);
  }
}

}  // namespace

void Page::add(const std::string& name, std::span<const Drawing> passes) {
  std::string text =
      fmt::format(R"({{"name":{},"ranks":{},"passes":[)", script_safe(name), passes.front().schedule->ranks.size());
  for (const Drawing& pass : passes) {
    if (text.back() != '[') text += ',';
    const std::size_t left = most_bytes_ - std::min(most_bytes_, bytes_ + text.size());
    std::string data;
    if (numbers_of_steps(pass) * bytes_of_number <= left) data = script_safe(pass_data(pass, PageDetail::steps));
    if (data.empty() || data.size() > left) {
      data = script_safe(pass_data(pass, PageDetail::coarse));
      coarser_.push_back(fmt::format("{} {}", name, name_of(pass.schedule->outline.pass)));
    }
    text += data;
  }
  schedules_.push_back(text + "]}");
  bytes_ += schedules_.back().size();
}

std::string Page::finish(const PageTable& table) const {
  return filled(part("page.html"), [&](std::string_view name) -> std::string {
    if (name != "data") return std::string(part(name));
    return fmt::format(R"({{"schema_version":1,"title":{},"coarser":{},"table":{},"schedules":[{}]}})",
                       script_safe(title_), script_safe(coarser_), script_safe(table_data(table)),
                       fmt::join(schedules_, ",\n"));
  });
}

}  // namespace distattn
