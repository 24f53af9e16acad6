/// What libFuzzer calls, or replay.cpp where the compiler has no libFuzzer. The first argument names the target.

#include <algorithm>
#include <cstdint>

#include "fuzz/targets.hpp"

namespace {

const distattn::fuzz::Target* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string_view name = *argc > 1 ? (*argv)[1] : "";
  const auto& targets = distattn::fuzz::targets;
  const auto found = std::find_if(targets.begin(), targets.end(), [&](const auto& each) { return each.name == name; });
  if (found == targets.end()) {
    std::fprintf(stderr, "no target is called '%s' (it is the first argument): see tests/fuzz/targets.hpp\n",
                 std::string(name).c_str());
    std::exit(2);
  }
  target = &*found;
  std::copy(*argv + 2, *argv + *argc, *argv + 1);
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target->read(std::as_bytes(std::span(data, size)));
  return 0;
}
