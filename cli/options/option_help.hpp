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

/// One of the things that a value may be.
struct OptionChoice {
  OptionChoice(std::string word)
      : form(word), words{std::move(word)} {}  // NOLINT(google-explicit-constructor): most are
  OptionChoice(std::string as_shown, std::vector<std::string> as_typed, bool file)
      : form(std::move(as_shown)), words(std::move(as_typed)), is_file(file) {}

  std::string form;                ///< as help shows it: "causal", "prefix:K", "burst[:zigzag]", "FILE"
  std::vector<std::string> words;  ///< that are typed for it; what follows one that ends in a colon is not listed
  bool is_file = false;            ///< a path
};
/// A word, a colon and something else: "prefix:" and "K".
inline OptionChoice begun(const std::string& word, const std::string& rest) { return {word + rest, {word}, false}; }
inline OptionChoice any_file(std::string form) { return {std::move(form), {}, true}; }

using OptionChoices = std::vector<OptionChoice>;
/// As help shows them: "a|b|c", where several are taken "a|b|c[,...]".
inline std::string text_of(const OptionChoices& choices, const std::string& between) {
  std::string text;
  for (const OptionChoice& choice : choices) text += (text.empty() ? "" : "|") + choice.form;
  return between.empty() ? text : text + "[,...]";
}

/// Asked for when help or completions are written: by then the registries are full.
using ListChoices = std::function<OptionChoices()>;

/// What an option takes.
struct Values {
  Values(const char* name) : text(name) {}             // NOLINT(google-explicit-constructor): most are plain
  Values(std::string name) : text(std::move(name)) {}  // NOLINT(google-explicit-constructor)
  Values(std::string name, ListChoices all, std::string separators)
      : text(std::move(name)), choices(std::move(all)), between(std::move(separators)) {}

  std::string text;     ///< as help shows it; empty: the choices
  ListChoices choices;  ///< empty: any text
  std::string between;  ///< what separates several: ","
};

}  // namespace distattn::cli
