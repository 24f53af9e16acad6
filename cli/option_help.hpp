#pragma once
/// What help, the manual and completions say of an option: where it stands, and what it takes.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distattn::cli {

/// The headings of --help and of the manual, in their order.
enum class Group : std::uint8_t { problem, mask, schedule, input, device, output };
inline constexpr std::array<std::string_view, 6> group_names = {"problem", "mask",   "schedule",
                                                                "input",   "device", "output"};

/// The heading below which an option stands, and whether --help leaves it to --help-all.
struct Place {
  constexpr Place(Group heading) : group(heading) {}  // NOLINT(google-explicit-constructor): most are plain
  Group group;
  bool rare = false;
};
/// Not needed every day: shown by --help-all.
constexpr Place rarely(Group group) {
  Place place(group);
  place.rare = true;
  return place;
}

/// The words that a value may be, and their forms: "causal", "prefix:K", "burst[:zigzag]"; capitals stand for something
/// else. Asked for when help or completions are written.
using Forms = std::function<std::vector<std::string>()>;

/// What an option takes.
struct Values {
  Values(const char* name) : text(name) {}             // NOLINT(google-explicit-constructor): most are plain
  Values(std::string name) : text(std::move(name)) {}  // NOLINT(google-explicit-constructor)
  Values(std::string name, Forms all, std::string separators)
      : text(std::move(name)), forms(std::move(all)), between(std::move(separators)) {}

  std::string text;     ///< as help shows it; empty: the forms
  Forms forms;          ///< empty: none that could be listed
  std::string between;  ///< what separates several: ","
};

}  // namespace distattn::cli
