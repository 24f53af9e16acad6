#include "distattn/machine.hpp"

#include "fuzz/targets.hpp"

namespace distattn::fuzz {

/// A description that is accepted reads the same after it was written.
void read_machine(Bytes bytes) {
  const auto machine = accepted([&] { return machine_from_json(text_of(bytes), "a machine"); });
  if (!machine) return;
  const auto again = accepted([&] { return machine_from_json(to_json(*machine), "what was written"); });
  require(again && *again == *machine, "a machine that is written reads the same");
}

}  // namespace distattn::fuzz
