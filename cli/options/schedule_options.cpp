#include "cli/options/schedule_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/index.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<std::string_view, 2> balance_names = {"tokens", "work"};
constexpr std::array<std::string_view, 3> mode_names = {"overlapped", "serial", "gathered"};
constexpr std::int64_t most_ranks = 1 << 16;
constexpr std::size_t longest_layout = std::size_t{1} << 28;

/// A part of a whole: "0.005" or "0.5%".
double parse_part(std::string_view option, std::string_view text) {
  const bool percent = text.ends_with('%');
  const double number = parse_number(option, text.substr(0, text.size() - (percent ? 1 : 0)));
  const double part = percent ? number / 100 : number;
  if (part < 0) refuse(fmt::format("{} {} (a part of a share): give 0 or more", option, text));
  return part;
}

Mode parse_mode(std::string_view option, std::string_view text) {
  return static_cast<Mode>(parse_word(option, text, mode_names));
}

std::vector<Mode> parse_modes(std::string_view option, std::string_view text) {
  std::vector<Mode> modes;
  for (const std::string& item : parse_list(option, text)) modes.push_back(parse_mode(option, item));
  return modes;
}

OptionChoice choice_of(const NamedSchedule& schedule) {
  const ScheduleArguments& takes = schedule.takes;
  OptionChoice choice{schedule.grammar(), {}, false};
  if (takes.required.empty()) choice.words.push_back(schedule.name);
  if (!takes.required.empty() || !takes.optional.empty()) choice.words.push_back(schedule.name + ":");
  if (!takes.required.empty()) return choice;
  for (const std::string& word : takes.words) choice.words.push_back(schedule.name + ":" + word);
  return choice;
}

OptionChoices schedule_choices() {
  OptionChoices choices = {std::string("auto")};
  for (const NamedSchedule& schedule : schedules()) choices.push_back(choice_of(schedule));
  return choices;
}

OptionChoices schedule_choices_and_all() {
  OptionChoices choices = schedule_choices();
  choices.emplace_back(std::string("all"));
  return choices;
}

std::string schedule_help(Several several, const std::string& usual) {
  std::vector<std::string> forms;
  for (const OptionChoice& choice : schedule_choices()) forms.push_back(choice.form);
  return fmt::format("{}, or F/B{} (default {})", fmt::join(forms, ", "), several == Several::yes ? ", lists, all" : "",
                     usual);
}

/// Predictions are others than the user may expect: said once, however often they are made.
void note_unused_calibration() {
  static std::once_flag noted;
  std::call_once(noted, [] {
    const std::string why_not = stored_calibration().why_not;
    if (!why_not.empty()) note(why_not);
  });
}

OptionChoices layout_choices() {
  OptionChoices choices;
  for (const LayoutKind kind : named_layouts) choices.emplace_back(std::string(name_of(kind)));
  choices.push_back({"striped:B", {"striped:"}, false});
  choices.push_back(any_file("FILE.json"));
  return choices;
}

OptionChoices machine_choices() {
  OptionChoices choices = choices_of(built_in_machines());
  choices.insert(choices.end(), {std::string("this"), any_file("FILE")});
  return choices;
}

}  // namespace

void add_schedule_options(App& app, ScheduleOptions& options, Several several) {
  const auto parse_schedules = [several](std::string_view option, std::string_view text) {
    auto names = parse_list(option, text);
    if (several == Several::no && (names.size() != 1 || text == "all")) {
      refuse(fmt::format("{} {} (one schedule is run at a time): name one", option, text));
    }
    return names;
  };
  const auto parse_ranks = [several](std::string_view option, std::string_view text) {
    auto ranks = several == Several::yes ? parse_sizes(option, text) : std::vector{parse_size(option, text)};
    for (const std::int64_t count : ranks) within(option, count, 1, most_ranks);
    return ranks;
  };
  const auto parse_node_size = [](std::string_view option, std::string_view text) {
    return within(option, parse_size(option, text), 1, most_ranks);
  };
  const auto parse_ahead = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), 0, most_ranks));
  };
  add_value(
      app, "--schedule", options.schedules, parse_schedules, schedule_help(several, options.schedules.front()),
      several == Several::yes ? Values{"NAMES", schedule_choices_and_all, ",/"} : Values{"NAME", schedule_choices, "/"},
      Group::schedule);
  const char* const mode_help = "When messages travel (default: the schedule's own)";
  if (several == Several::yes) {
    add_value(app, "--mode", options.modes, parse_modes, mode_help, some_of(mode_names), rarely(Group::schedule));
  } else {
    add_value(app, "--mode", options.mode, parse_mode, mode_help, one_of(mode_names), rarely(Group::schedule));
  }
  add_value(app, "--ranks", options.ranks, parse_ranks,
            options.ranks == std::vector<std::int64_t>{1} ? "They share the sequence (default: a launcher's, or 1)"
                                                          : "They share the sequence",
            several == Several::yes ? "SIZES" : "SIZE", Group::schedule);
  add_value(app, "--node-size", options.node_size, parse_node_size,
            "Ranks of a node, consecutive (default: those of --machine, or one node)", "SIZE", Group::schedule);
  add_value(app, "--ahead", options.ahead, parse_ahead, "Steps by which messages between nodes are posted early",
            "SIZE", rarely(Group::schedule));
  add_value(
      app, "--balance", options.balance,
      [](std::string_view option, std::string_view text) {
        return static_cast<Balance>(parse_word(option, text, balance_names));
      },
      "placed: equal shares of tokens (default), or of work where that is faster: slow ranks own fewer",
      one_of(balance_names), rarely(Group::schedule));
  add_value(app, "--balance-tokens", options.balance_tokens, parse_part,
            "placed: tokens of a rank beyond its share, as 0.005 or 0.5% (default 0.5%)", "PART",
            rarely(Group::schedule));
  const auto read_layout = [&options](std::string_view option, std::string_view path) {
    options.layout_text = layout_named(path) ? std::string(path) : read_file_or_pipe(std::string(path), longest_layout);
    if (options.layout_text.empty())
      refuse(fmt::format("{} {} (the file is empty): write segments, as docs/placement.md does", option, path));
    return std::string(path);
  };
  add_value(
      app, "--layout", options.layout, read_layout,
      "Who owns which tokens: striped:B deals out blocks of B tokens in turn, on any mesh; a file says it for placed",
      Values{"NAME|FILE.json", layout_choices, ""}, rarely(Group::schedule));
  add_value(app, "--memory", options.memory_bytes, parse_size, "Most bytes of a rank's buffers, all passes together",
            "BYTES", Group::device);
}

void take_launched_ranks(const App& app, ScheduleOptions& options) {
  if (app.count("--ranks") == 0) options.ranks = {ranks_in_environment()};
}

void add_machine_option(App& app, ScheduleOptions& options) {
  add_value(app, "--machine", options.machine, as_text,
            "Description of a machine, for predictions and auto: a file, " +
                fmt::format("{}", fmt::join(built_in_machines(), ", ")) + ", this (default)",
            Values{"FILE|NAME", machine_choices, ""}, Group::device);
}

std::vector<ScheduleOptions> each_mode(const ScheduleOptions& options) {
  if (options.modes.empty()) return {options};
  std::vector<ScheduleOptions> each(options.modes.size(), options);
  for (std::size_t i = 0; i < each.size(); ++i) each[i].mode = options.modes[i];
  return each;
}

Machine machine_of(const ScheduleOptions& options) {
  const std::string name = options.machine.value_or("this");
  if (name == "this") note_unused_calibration();
  return find_machine(name).in_nodes_of(static_cast<int>(options.node_size.value_or(0)));
}

ScheduleRequest request_of(const ScheduleOptions& options, const std::string& schedule, Passes passes,
                           const Machine& machine) {
  ScheduleRequest request{schedule, passes, options.mode};
  if (options.node_size) request.node_size = static_cast<int>(*options.node_size);
  request.ahead = options.ahead;
  request.memory_bytes = options.memory_bytes.value_or(request.memory_bytes);
  request.balance = options.balance.value_or(request.balance);
  request.balance_tokens = options.balance_tokens.value_or(request.balance_tokens);
  request.machine = machine;
  request.layout = options.layout_text;
  if (!options.balance && !options.balance_tokens) return request;
  const char* const option = options.balance ? "--balance" : "--balance-tokens";
  if (!options.layout.empty())
    refuse(fmt::format("{} with --layout (which says who owns what): leave one out", option));
  const auto places = [](const std::string& name) { return name == "auto" || name == "all" || name == "placed"; };
  if (std::none_of(options.schedules.begin(), options.schedules.end(), places)) {
    refuse(fmt::format("{} with --schedule {} (only placed deals tokens out by it): choose placed or auto", option,
                       fmt::join(options.schedules, ",")));
  }
  return request;
}

WhyNot with_options_named(WhyNot why) {
  for (std::string* const text : {&why.reason, &why.message}) {
    for (const auto& [field, option] : {std::pair<std::string_view, std::string_view>{"ahead ", "--ahead "},
                                        {"add node_size", "add --node-size"},
                                        {"larger balance_tokens", "larger --balance-tokens"},
                                        {"memory_bytes allows", "--memory allows"}}) {
      const std::size_t at = text->find(option) == text->npos ? text->find(field) : text->npos;  // named once
      if (at != text->npos) text->replace(at, field.size(), option);
    }
  }
  return why;
}

std::string skipped_text(const WhyNot& why) {
  return fmt::format("{} on {} ranks: {}", why.schedule, why.ranks, why.reason);
}

std::string given_text(const ScheduleOptions& options) {
  std::string text;
  if (options.mode) text += fmt::format(", --mode {}", name_of(*options.mode));
  for (const Mode mode : options.modes) text += fmt::format(", --mode {}", name_of(mode));
  if (options.node_size) text += fmt::format(", --node-size {}", *options.node_size);
  if (options.ahead) text += fmt::format(", --ahead {}", *options.ahead);
  if (options.balance) text += fmt::format(", --balance {}", balance_names[index(*options.balance)]);
  if (options.balance_tokens) text += fmt::format(", --balance-tokens {}", *options.balance_tokens);
  if (!options.layout.empty()) text += fmt::format(", --layout {}", options.layout);
  if (options.memory_bytes) text += fmt::format(", --memory {}", *options.memory_bytes);
  return text;
}

namespace {

/// All schedules on a layout, each once; those that have one of their own come under their names.
std::vector<std::string> names_on(const Layout& layout, const Problem& problem, int ranks) {
  std::vector<std::string> names;
  for (std::string& name : all_schedule_names(problem, ranks)) {
    const auto pair = resolve_pair(name, layout, problem, ranks);
    if (const auto* const recipes = std::get_if<RecipePair>(&pair)) name = name_of(*recipes);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::vector<std::string> names_of(const ScheduleOptions& options, const Problem& problem, int ranks) {
  const std::optional<Layout> layout = layout_named(options.layout);
  std::vector<std::string> names;
  for (const std::string& name : options.schedules) {
    if (name == "all" && layout) {
      for (std::string& each : names_on(*layout, problem, ranks)) names.push_back(std::move(each));
    } else if (name == "all" && !options.layout.empty()) {
      names.emplace_back("placed");  // alone takes segments
    } else if (name == "all") {
      for (std::string& each : all_schedule_names(problem, ranks)) names.push_back(std::move(each));
    } else {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace distattn::cli
