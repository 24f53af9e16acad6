#pragma once
/// Readers of what others wrote, each called with any bytes: files that users name, frames that peers send.

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "distattn/error.hpp"

namespace distattn::fuzz {

using Bytes = std::span<const std::byte>;

void read_control_frames(Bytes bytes);
void read_layout(Bytes bytes);
void read_machine(Bytes bytes);
void read_mask(Bytes bytes);
void read_npy_file(Bytes bytes);
void read_options(Bytes bytes);
void read_program(Bytes bytes);
void read_safetensors_file(Bytes bytes);

struct Target {
  std::string_view name;
  void (*read)(Bytes bytes);
};

inline constexpr std::array targets = {
    Target{"control", read_control_frames}, Target{"layout", read_layout},
    Target{"machine", read_machine},        Target{"mask", read_mask},
    Target{"npy", read_npy_file},           Target{"options", read_options},
    Target{"program", read_program},        Target{"safetensors", read_safetensors_file}};

inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Ends the process, which is how a fuzzer learns of a fault.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

/// What `read` makes of the bytes, or nothing if it refuses them as every reader does: by an Error of one line.
template <class Read>
auto accepted(Read read) -> std::optional<std::invoke_result_t<Read>> {
  try {
    return read();
  } catch (const Error& error) {
    const std::string_view why = error.what();
    require(!why.empty() && why.find('\n') == why.npos, "an error is one line");
    return std::nullopt;
  }
}

}  // namespace distattn::fuzz
