#include "cli/options/app.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// A file of options, for CLI11.
class ConfigReader final : public CLI::Config {
 public:
  ConfigReader(ReadConfig read, const App& root) : read_(std::move(read)), root_(root) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> read;
    for (ConfigItem& item : read_(input, root_)) {
      CLI::ConfigItem& said = read.emplace_back();
      if (item.of_command) said.parents = {root_.chosen()->get_name()};
      said.name = std::move(item.name);
      said.inputs = {std::move(item.text)};
    }
    return read;
  }
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

 private:
  ReadConfig read_;
  const App& root_;
};

/// CLI11 reads numbers and other words as well, and a flag of 5 as one that is given.
void check_flags(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() > 0) continue;
    option->check([name = option->get_name()](const std::string& text) {
      if (text != "true" && text != "false") {
        refuse(fmt::format("{} {} (neither true nor false): write {} alone", name, text, name));
      }
      return std::string();
    });
  }
}

/// Scripts append to a command that somebody else wrote.
void let_last_win(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (!option->get_positional() && option->get_expected_max() <= 1) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

/// Why CLI11 refuses: its words say what alone.
const char* reason_of(const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) return "one is given without the other";
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return "both are given";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) return "it takes another number of values";
  return "command line";
}

/// What follows the program's name. "-n=5" is "-n5", as "--runs=5" is "--runs 5".
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (std::string& word : words) {
    if (word.size() > 3 && word[0] == '-' && word[1] != '-' && word[2] == '=') word.erase(2, 1);
  }
  return words;
}

}  // namespace

std::string Option::get_name() const { return parsed_->get_name(); }
std::vector<std::string> Option::short_names() const { return parsed_->get_snames(); }
std::vector<std::string> Option::long_names() const { return parsed_->get_lnames(); }
bool Option::asks_for_help() const { return get_name().starts_with("--help"); }
bool Option::stands_in_files() const { return parsed_->get_configurable(); }
bool Option::takes_value() const { return parsed_->get_items_expected_max() > 0; }
std::size_t Option::count() const { return parsed_->count(); }
std::string Option::text() const { return count() == 0 ? std::string() : parsed_->as<std::string>(); }

Option* Option::description(const std::string& text) {
  description_ = text;
  return this;
}

Option* Option::required() {
  parsed_->required();
  return this;
}

Option* Option::excludes(Option* other) {
  parsed_->excludes(other->parsed_);
  return this;
}

Option* Option::needs(Option* other) {
  parsed_->needs(other->parsed_);
  return this;
}

Option* Option::needs_no_more(Option* other) {
  parsed_->remove_needs(other->parsed_);
  return this;
}

App::App(const std::string& description, const std::string& name)
    : owned_(std::make_unique<CLI::App>(description, name)), parsed_(owned_.get()) {
  parsed_->require_subcommand(1);
  parsed_->fallthrough();
  parsed_->set_help_all_flag("--help-all");  // commands inherit it
  own_help();
}

App::App(App&, CLI::App& parsed) : parsed_(&parsed) { own_help(); }

App::~App() = default;

Option* App::own(CLI::Option* option, const std::string& description, Values values, Place place) {
  // CLI11 says it where the value is missing.
  if (option->get_items_expected_max() > 0) option->type_name(values.text.empty() ? "NAME" : values.text);
  return options_.emplace_back(std::make_unique<Option>(*option, description, std::move(values), place)).get();
}

void App::own_help() {
  own(parsed_->get_help_ptr(), "The options needed every day", "", Group::output);
  own(parsed_->get_option("--help-all"), "All options, including rarely needed ones", "", Group::output);
}

App* App::add_subcommand(const std::string& name, const std::string& description) {
  CLI::App* const added = parsed_->add_subcommand(name, description);
  return subcommands_.emplace_back(std::unique_ptr<App>(new App(*this, *added))).get();
}

Option* App::add_flag(const std::string& names, bool& into, const std::string& description, Place place) {
  return own(parsed_->add_flag(names, into), description, "", place);
}

Option* App::add_flag(const std::string& names, const std::function<void(bool)>& take, const std::string& description,
                      Place place) {
  const auto take_count = [take](std::int64_t count) { take(count > 0); };
  return own(parsed_->add_flag_function(names, take_count), description, "", place);
}

Option* App::add_text(const std::string& names, const std::function<void(const std::string&)>& take,
                      const std::string& description, Values values, Place place) {
  return own(parsed_->add_option_function<std::string>(names, take), description, std::move(values), place);
}

Option* App::add_texts(const std::string& names, const std::function<void(const std::vector<std::string>&)>& take,
                       const std::string& description, Values values, Place place) {
  auto* const option = parsed_->add_option_function<std::vector<std::string>>(names, take);
  return own(option->allow_extra_args(false), description, std::move(values), place);
}

Option* App::add_optional_text(const std::string& names, std::function<void(const std::string&)> take,
                               const std::string& description, Values values, Place place) {
  const auto take_first = [take = std::move(take)](const std::vector<std::string>& words) {
    take(words.empty() ? "" : words.front());
  };
  return own(parsed_->add_option_function<std::vector<std::string>>(names, take_first)->expected(0, 1), description,
             std::move(values), place);
}

void App::add_version(const std::string& name) {
  own(parsed_->set_version_flag(name, std::string()), "The version, and the versions of what it was built with", "",
      Group::output);
}

Option* App::add_config(const std::string& name, std::function<std::string(const std::string&)> find, ReadConfig read,
                        const std::string& description, Place place) {
  parsed_->config_formatter(std::make_shared<ConfigReader>(std::move(read), *this));
  return own(parsed_->set_config(name, "")->transform(std::move(find), ""), description, "FILE", place);
}

void App::take_everything() { parsed_->allow_extras()->fallthrough(false); }

std::string App::get_name() const { return parsed_->get_name(); }
std::string App::get_description() const { return parsed_->get_description(); }

std::vector<Option*> App::get_options() const {
  std::vector<Option*> options;
  for (const auto& option : options_) options.push_back(option.get());
  return options;
}

Option* App::find_option(const std::string& name) const {
  const CLI::Option* const found = std::as_const(*parsed_).get_option_no_throw(name);
  for (const auto& option : options_) {
    if (found != nullptr && option->parsed_ == found) return option.get();
  }
  return nullptr;
}

Option* App::get_option(const std::string& name) const {
  Option* const found = find_option(name);
  DISTATTN_EXPECT(found != nullptr);
  return found;
}

void App::remove_option(Option* option) {
  parsed_->remove_option(option->parsed_);
  std::erase_if(options_, [&](const auto& each) { return each.get() == option; });
}

std::vector<App*> App::subcommands() const {
  std::vector<App*> commands;
  for (const auto& command : subcommands_) commands.push_back(command.get());
  return commands;
}

App* App::chosen() const {
  for (const auto& command : subcommands_) {
    if (command->parsed_->parsed()) return command.get();
  }
  return nullptr;
}

std::vector<std::string> App::remaining() const { return parsed_->remaining(true); }

Parsed App::parse(int argc, char** argv) {
  std::vector<CLI::App*> apps = {parsed_};
  for (const auto& command : subcommands_) apps.push_back(command->parsed_);
  for (CLI::App* const app : apps) {
    check_flags(*app);
    let_last_win(*app);
  }
  try {
    std::vector<std::string> words = words_of(argc, argv);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    parsed_->parse(std::move(words));
    return {};
  } catch (const CLI::CallForHelp&) {
    return {Parsed::Kind::help, {}};
  } catch (const CLI::CallForAllHelp&) {
    return {Parsed::Kind::help_all, {}};
  } catch (const CLI::CallForVersion&) {
    return {Parsed::Kind::version, {}};
  } catch (const Error&) {  // who asks for help does not have the rest right yet
    const auto asked = [&](const CLI::Option* (CLI::App::*help)() const) {
      return std::any_of(apps.begin(), apps.end(), [&](const CLI::App* app) { return (app->*help)()->count() > 0; });
    };
    if (asked(&CLI::App::get_help_all_ptr)) return {Parsed::Kind::help_all, {}};
    if (asked(&CLI::App::get_help_ptr)) return {Parsed::Kind::help, {}};
    throw;
  } catch (const CLI::ParseError& error) {
    return {Parsed::Kind::refused, fmt::format("{} ({})", error.what(), reason_of(error))};
  }
}

}  // namespace distattn::cli
