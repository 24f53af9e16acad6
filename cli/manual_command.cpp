/// distattn manual: the man page, written from the options that the program has.

#include <fmt/format.h>

#include "command.hpp"
#include "distattn/version.hpp"
#include "option_tree.hpp"
#include "output.hpp"

namespace distattn::cli {
namespace {

/// roff takes a leading dot or quote as a request and a plain hyphen as a soft one.
std::string escaped(std::string_view text) {
  std::string roff;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) roff += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
  }
  return roff;
}

std::string option_text(const OptionEntry& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escaped(name));
  if (!option.value.empty()) names += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", escaped(option.value));
  return fmt::format(".TP\n{}\n{}\n", names, escaped(option.description));
}

std::string manual(const std::vector<CommandEntry>& tree) {
  const CommandEntry& root = tree.front();
  std::string text = fmt::format(".TH DISTATTN 1 \"\" \"distattn {}\" \"User Commands\"\n", version());
  text += ".SH NAME\ndistattn \\- distributed, memory\\-efficient, exact attention\n";
  text += ".SH SYNOPSIS\n.B distattn\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS OF ALL COMMANDS\n", escaped(root.description));
  for (const OptionEntry& option : root.options) text += option_text(option);
  text += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < tree.size(); ++i) {
    text += fmt::format(".SS distattn {}\n{}\n", escaped(tree[i].name), escaped(tree[i].description));
    for (const OptionEntry& option : tree[i].options) text += option_text(option);
  }
  text +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nfine\n"
      ".TP\n1\na wrong result, or a gate missed\n"
      ".TP\n2\nusage, an unsupported combination, missing or bad input\n"
      ".TP\n3\nenvironment (a backend that is not built, no device, output that cannot be written), or a peer failed\n"
      ".TP\n4\ntimeout\n"
      ".TP\n130\ninterrupted\n";
  return text;
}

}  // namespace

Command add_manual_command(CLI::App& root) {
  auto* const app = root.add_subcommand("manual", "The manual as a man page (pipe it to man -l -)");
  return {app, [&root] {
            print(manual(option_tree(root)));
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli
