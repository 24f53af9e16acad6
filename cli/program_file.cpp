#include "program_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "distattn/error.hpp"
#include "distattn/io.hpp"

namespace distattn::cli {
namespace {

constexpr int deepest = 64;

bool is_list(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '[';
}

/// What nests deeper than programs do is refused while it is read, before anything calls itself for each level.
nlohmann::json parsed_list(const std::string& text) {
  const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    if (depth > deepest) refuse(fmt::format("lists and objects nest more than {} deep (schedule) flatten it", deepest));
    return true;
  };
  try {
    return nlohmann::json::parse(text, is_shallow);
  } catch (const nlohmann::json::exception&) {
    refuse("not JSON (a list is not closed, or an item is not well-formed) print it with show");
  }
}

}  // namespace

std::vector<Schedule> read_programs(const std::string& path) {
  const std::string text = read_file(path);
  try {
    if (!is_list(text)) return {schedule_from_json(text)};
    std::vector<Schedule> programs;
    for (const nlohmann::json& program : parsed_list(text)) programs.push_back(schedule_from_json(program.dump()));
    return programs;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", path, error.what()));
  }
}

std::string programs_json(const std::vector<Schedule>& programs) {
  if (programs.size() == 1) return to_json(programs.front()) + "\n";
  std::string text;
  for (const Schedule& program : programs) text += (text.empty() ? "[" : ",\n") + to_json(program);
  return text + "]\n";
}

}  // namespace distattn::cli
