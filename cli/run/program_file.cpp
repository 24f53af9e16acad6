#include "cli/run/program_file.hpp"

#include <fmt/format.h>

#include "distattn/error.hpp"
#include "distattn/files.hpp"

namespace distattn::cli {

std::vector<Schedule> read_programs(const std::string& path) {
  try {
    return schedules_from_json(read_file(path));
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
