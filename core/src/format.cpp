#include "core/src/format.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace distattn {
namespace {

constexpr const char* unknown = "–";

}  // namespace

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return unknown;
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[unit]);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return unknown;
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

}  // namespace distattn
