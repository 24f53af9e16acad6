#pragma once
/// An option whose text one function takes apart.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/app.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

/// `text`, refused where it is empty: it would read as an option that was not given.
inline const std::string& not_empty(std::string_view option, const std::string& text) {
  if (text.empty()) {
    refuse(std::string(option) + " '' (an empty value says nothing): give one, or leave the option out");
  }
  return text;
}

/// Adds `names` ("-n,--runs"); when it is given, `into = parse("--runs", text)`; an empty text is refused. `into` must
/// outlive the app.
template <class T, class Parse>
Option* add_value(App& app, const std::string& names, T& into, Parse parse, const std::string& help,
                  const Values& values, Place place) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto take = [&into, parse = std::move(parse), name](const std::string& text) {
    into = parse(name, not_empty(name, text));
  };
  return app.add_text(names, take, help, values, place);
}

/// Words as choices.
template <class Words>
OptionChoices choices_of(const Words& words) {
  OptionChoices all;
  for (const auto& word : words) all.emplace_back(std::string(word));
  return all;
}
inline OptionChoices choices_of(OptionChoices choices) { return choices; }
/// One of `all`, words or choices, or where `between` separates them several.
template <class All>
Values one_of(const All& all, const std::string& between = "") {
  const OptionChoices choices = choices_of(all);
  return {text_of(choices, between), [choices] { return choices; }, between};
}
/// A list of them.
template <class All>
Values some_of(const All& all) {
  return one_of(all, ",");
}

/// What one command says more of an option that several have.
inline void add_to_help(App& app, const char* option, const std::string& words) {
  Option* const described = app.get_option(option);
  described->description(described->get_description() + words);
}

/// `option` cannot stand with any option that `app` has so far, but for `kept` and those that ask for help.
inline void exclude_others(App& app, Option& option, const Option* kept = nullptr) {
  for (Option* const other : app.get_options()) {
    if (other != &option && other != kept && !other->asks_for_help()) option.excludes(other);
  }
}

/// Plain text.
inline std::string as_text(std::string_view, std::string_view text) { return std::string(text); }

}  // namespace distattn::cli
