#include "program_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "distattn/error.hpp"
#include "distattn/io.hpp"

namespace distattn::cli {

std::vector<Schedule> read_programs(const std::string& path) {
  const std::string text = read_file(path);
  if (text.find_first_not_of(" \t\r\n") == text.npos || text[text.find_first_not_of(" \t\r\n")] != '[') {
    return {schedule_from_json(text)};
  }
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (list.is_discarded()) refuse(fmt::format("{} is not JSON (a list is not closed) print it with show", path));
  std::vector<Schedule> programs;
  for (const nlohmann::json& program : list) programs.push_back(schedule_from_json(program.dump()));
  return programs;
}

std::string programs_json(const std::vector<Schedule>& programs) {
  if (programs.size() == 1) return to_json(programs.front()) + "\n";
  std::string text;
  for (const Schedule& program : programs) text += (text.empty() ? "[" : ",\n") + to_json(program);
  return text + "]\n";
}

}  // namespace distattn::cli
