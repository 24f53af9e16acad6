/// distattn completion bash|zsh|fish.

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.hpp"
#include "cli/help/option_tree.hpp"
#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "cli/terminal/output.hpp"

namespace distattn::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  return fmt::format("{}", fmt::join(words, between));
}

/// In single quotes, for any of the three shells.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> names_of(const std::vector<CommandEntry>& tree) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < tree.size(); ++i) names.push_back(tree[i].name);
  return names;
}

std::string bash_case(std::string_view pattern, const std::vector<std::string>& words, const std::string& between) {
  const std::string several = between.empty() ? "" : " between=" + in_quotes(between);
  return fmt::format("    {}) words={}{} ;;\n", in_quotes(pattern), in_quotes(joined(words)), several);
}

/// An option's value: one of its words, or a file, which bash finds by itself.
std::string bash_value(std::string_view pattern, const OptionEntry& option) {
  if (option.words.empty()) return fmt::format("    {}): return ;;\n", in_quotes(pattern));
  return bash_case(pattern, option.words, option.between);
}

/// Text inside one of zsh's option specifications.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

/// What completes a value; the blank in front keeps zsh from adding words of its own.
std::string zsh_values(const OptionEntry& option) {
  if (option.words.empty()) return "_files";
  return fmt::format(" _distattn_words \"{}\" {}{}", option.between, option.takes_file ? "files " : "words ",
                     zsh_escaped(joined(option.words)));
}

std::string zsh_options(const CommandEntry& command) {
  std::string text;
  for (const OptionEntry& option : command.options) {
    std::string argument;
    if (!option.value.empty()) argument = fmt::format(":{}:{}", zsh_escaped(option.value), zsh_values(option));
    if (option.names.empty()) text += fmt::format(" \\\n  {}", in_quotes("1" + argument));
    for (const std::string& name : option.names) {
      text +=
          fmt::format(" \\\n  {}", in_quotes(fmt::format("{}[{}]{}", name, zsh_escaped(option.description), argument)));
    }
  }
  return text;
}

/// Words, or lists of them with fish's own function for those.
std::string fish_values(const OptionEntry& option) {
  const std::string words = joined(option.words);
  return option.between.starts_with(',') ? fmt::format("(__fish_complete_list , \"printf '%s\\n' {}\")", words) : words;
}

std::string fish_option(const std::string& condition, const OptionEntry& option) {
  std::string line = "complete -c distattn" + condition;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty()) line += option.takes_file ? " -r" : " -x";
  if (!option.words.empty()) line += " -a " + in_quotes(fish_values(option));
  return line + " -d " + in_quotes(option.description) + "\n";
}

std::string bash_completion(const std::vector<CommandEntry>& tree) {
  std::string after_option, after_command;
  for (const CommandEntry& command : tree) {
    std::vector<std::string> words;
    if (command.name.empty()) words = names_of(tree);
    for (const OptionEntry& option : command.options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
      if (option.names.empty()) words.insert(words.end(), option.words.begin(), option.words.end());
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) after_option += bash_value(command.name + " " + name, option);
    }
    after_command += bash_case(command.name, words, "");
  }
  return fmt::format(R"(_distattn() {{
  local current previous command='' words='' between='' before='' glued='' i
  local -a line=()
  COMPREPLY=()
  # Readline takes words apart at : and =; an option and its value stay two.
  for i in "${{COMP_WORDS[@]:0:COMP_CWORD + 1}}"; do
    case $i in
    =) line+=('') glued=yes ;;
    :) line[-1]+=: glued=yes ;;
    *)
      if [[ -n $glued ]]; then line[-1]+=$i; else line+=("$i"); fi
      glued=''
      ;;
    esac
  done
  current=${{line[-1]}} previous=${{line[-2]-}}
  for i in "${{line[@]:1:${{#line[@]}}-2}}"; do
    case $i in
    {names})
      command=$i
      break
      ;;
    esac
  done
  case "$command $previous" in
{after_option}  esac
  if [[ -z $words ]]; then
    case $command in
{after_command}    esac
  fi
  # Of several values the last one is completed, and replaces what stands behind the last : alone.
  [[ -z $between ]] || before=${{current%"${{current##*["$between"]}}"}}
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${{current#"$before"}}")
  [[ "${{COMPREPLY[*]}}" != *: ]] || compopt -o nospace 2>/dev/null
  [[ $COMP_WORDBREAKS != *:* ]] || COMPREPLY=("${{COMPREPLY[@]#"${{current%"${{current##*:}}"}}"}}")
}}
complete -o default -F _distattn distattn
)",
                     fmt::arg("names", joined(names_of(tree), " | ")), fmt::arg("after_option", after_option),
                     fmt::arg("after_command", after_command));
}

std::string zsh_completion(const std::vector<CommandEntry>& tree) {
  std::string commands, arguments;
  for (std::size_t i = 1; i < tree.size(); ++i) {
    commands += fmt::format("    {}\n", in_quotes(tree[i].name + ":" + tree[i].description));
    arguments += fmt::format("  {})\n    _arguments{} ;;\n", tree[i].name, zsh_options(tree[i]));
  }
  return fmt::format(R"(#compdef distattn
local curcontext=$curcontext state line
typeset -A opt_args
_distattn_words() {{
  local between=$1 files=$2 word
  local -a whole open
  shift 2
  for word in $@; do
    [[ $word == *: ]] && open+=($word) || whole+=($word)
  done
  [[ -n $between ]] && compset -P "*[$between]"
  [[ $files == files ]] && _files
  compadd -a whole
  compadd -S '' -a open
}}
_arguments -C{options} \
  '1:command:->command' '*::argument:->argument'
case $state in
command)
  local -a commands
  commands=(
{commands}  )
  _describe command commands ;;
argument)
  case $line[1] in
{arguments}  esac ;;
esac
)",
                     fmt::arg("options", zsh_options(tree.front())), fmt::arg("commands", commands),
                     fmt::arg("arguments", arguments));
}

std::string fish_completion(const std::vector<CommandEntry>& tree) {
  std::string text;
  for (const CommandEntry& command : tree) {
    if (command.name.empty()) {
      for (const OptionEntry& option : command.options) text += fish_option("", option);
      continue;
    }
    text += fmt::format("complete -c distattn -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                        in_quotes(command.description));
    const std::string condition = fmt::format(" -n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionEntry& option : command.options) text += fish_option(condition, option);
  }
  return text;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const std::vector<CommandEntry>&);
};

constexpr Shell shells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};
constexpr std::string_view shell_names[] = {shells[0].name, shells[1].name, shells[2].name};

}  // namespace

Command add_completion_command(App& root) {
  auto* const app = root.add_subcommand("completion", "A completion script for a shell");
  const auto shell = std::make_shared<std::string>();
  app->add_text(
         "shell", [shell](const std::string& name) { *shell = name; }, "Which shell", one_of(shell_names),
         Group::output)
      ->required();
  return {app, [&root, shell] {
            print_data(shells[parse_word("shell", *shell, shell_names)].script(option_tree(root)));
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli
