#include "distattn/schedule.hpp"
#include "distattn/verify.hpp"
#include "fuzz/targets.hpp"

namespace distattn::fuzz {

/// Programs that are accepted read the same after they were written, and can be judged.
void read_program(Bytes bytes) {
  const auto schedules = accepted([&] { return schedules_from_json(text_of(bytes)); });
  if (!schedules) return;
  for (const Schedule& schedule : *schedules) {
    const std::string text = to_json(schedule);
    const auto again = accepted([&] { return schedule_from_json(text); });
    require(again && to_json(*again) == text, "a program that is written reads the same");
    accepted([&] { return verify(schedule); });
  }
}

}  // namespace distattn::fuzz
