#include <memory>
#include <sstream>

#include "cli/options/app.hpp"
#include "cli/options/config_file.hpp"
#include "fuzz/targets.hpp"

namespace distattn::fuzz {
namespace {

/// A command line "distattn run", of which one command has options of each kind.
std::unique_ptr<cli::App> command_line() {
  auto root = std::make_unique<cli::App>("reads files of options", "distattn");
  static bool flag = false;
  const auto ignore = [](const std::string&) {};
  root->add_text("--threads", ignore, "", "N", cli::Place(cli::Group::output));
  cli::App* const run = root->add_subcommand("run", "");
  run->add_text("-n,--runs", ignore, "", "N", cli::Place(cli::Group::output));
  run->add_text("--mask", ignore, "", "MASK", cli::Place(cli::Group::output));
  run->add_flag("--check", flag, "", cli::Place(cli::Group::output));
  root->add_subcommand("plan", "");
  std::string name = "distattn", command = "run";
  std::array words{name.data(), command.data()};
  require(root->parse(2, words.data()).kind == cli::Parsed::Kind::command, "the command line is one");
  return root;
}

}  // namespace

/// Whatever is accepted names options that are there.
void read_options(Bytes bytes) {
  static const std::unique_ptr<cli::App> root = command_line();
  std::istringstream input{std::string(text_of(bytes))};
  const auto items = accepted([&] { return cli::read_config(input, *root); });
  if (!items) return;
  for (const cli::ConfigItem& item : *items) {
    const cli::App& app = item.of_command ? *root->chosen() : *root;
    const bool known = app.find_option("--" + item.name) != nullptr || app.find_option("-" + item.name) != nullptr;
    require(known, "what is read is an option");
  }
}

}  // namespace distattn::fuzz
