/// distattn manual: the man page, written from the options that the program has.

#include <fmt/format.h>

#include <span>

#include "cli/command.hpp"
#include "cli/help/option_tree.hpp"
#include "cli/options/app.hpp"
#include "cli/terminal/output.hpp"
#include "distattn/version.hpp"

namespace distattn::cli {
namespace {

struct Entry {
  const char* term;
  const char* text;
};

constexpr Entry exits[] = {
    {"0", "fine"},
    {"1", "a wrong result, or a gate missed"},
    {"2", "usage, an unsupported combination, missing or bad input"},
    {"3", "environment (a backend that is not built, no device, output that cannot be written), or a peer failed"},
    {"4", "timeout"},
    {"130", "interrupted"}};

constexpr Entry variables[] = {
    {"DISTATTN_ISA",
     "Kernels of the CPU backend: amx, avx512_bf16, avx512, avx2 or generic (default: the widest that the processor "
     "has; "
     "amx and avx512_bf16, which multiply pairs of bf16, where that is fast)"},
    {"DISTATTN_ADDRESS", "Where other nodes reach rank 0 (default: as the launcher says, otherwise its own addresses)"},
    {"DISTATTN_PORT", "The port on which rank 0 listens (default: any, or next to the launcher's)"},
    {"DISTATTN_RANK", "This process's rank, where ranks meet at a file (default: in the order in which they come)"},
    {"DISTATTN_TOKEN",
     "What ranks show each other to be of one run (default: drawn, or the launcher's job); runs that are started by "
     "hand and meet at one port of a machine at a time need one each"},
    {"NO_COLOR", "No colours on a terminal; elsewhere there are none"},
    {"XDG_CACHE_HOME", "distattn/machine-HOST-CORES.json in it is what bench --calibrate stored (default: ~/.cache)"}};

/// A test runs each.
constexpr Entry examples[] = {
    {"distattn run --random --seq 4K --heads 8 --kv-heads 2 --head-dim 64 --ranks 4 --check",
     "Attention of random values on four threads, compared with float64"},
    {"distattn plan --machine dgx-h100x8 --ranks 64 --seq 512K --heads 32 --kv-heads 4 --head-dim 128 --dtype bf16",
     "Every schedule on 64 GPUs, the fastest first"},
    {"distattn show --schedule balanced --ranks 8 --seq 8K --heads 8 --head-dim 64 --format svg > balanced.svg",
     "A picture of one"},
    {"distattn validate --ranks 1-4 --seq 131 --heads 4 --kv-heads 2 --head-dim 16 --mask causal,full",
     "All schedules, forward and backward, at a length that does not divide"},
    {"mpirun -n 4 distattn run --random --seq 4K --heads 2 --head-dim 64 --check",
     "Four processes; srun and torchrun do as well"}};

/// roff takes a leading dot or quote as a request and a plain hyphen as a soft one. Long lists may break after a bar.
std::string escaped(std::string_view text) {
  std::string roff;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) roff += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else if (c == '|') {
      roff += "|\\:";
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

/// All of them, below the headings of --help-all.
std::string options_text(const CommandEntry& command) {
  std::string text;
  for (std::size_t group = 0; group < group_names.size(); ++group) {
    const std::vector<OptionEntry> options = options_below(static_cast<Group>(group), command);
    if (!options.empty()) text += fmt::format(".PP\n.I {}\n", group_names[group]);
    for (const OptionEntry& option : options) text += option_text(option);
  }
  return text;
}

std::string section(const char* heading, std::span<const Entry> entries) {
  std::string text = fmt::format(".SH {}\n", heading);
  for (const Entry& entry : entries) text += fmt::format(".TP\n{}\n{}\n", escaped(entry.term), escaped(entry.text));
  return text;
}

std::string manual(const std::vector<CommandEntry>& tree) {
  const CommandEntry& root = tree.front();
  std::string text = fmt::format(".TH DISTATTN 1 \"\" \"distattn {}\" \"User Commands\"\n", version());
  text += ".SH NAME\ndistattn \\- distributed, memory\\-efficient, exact attention\n";
  text += ".SH SYNOPSIS\n.B distattn\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS OF ALL COMMANDS\n", escaped(root.description));
  text += options_text(root);
  text += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < tree.size(); ++i) {
    text += fmt::format(".SS distattn {}\n{}\n", escaped(tree[i].name), escaped(tree[i].description));
    text += options_text(tree[i]);
  }
  text += section("EXIT STATUS", exits);
  text += section("ENVIRONMENT", variables);
  text += fmt::format(".SH OUTPUT AS JSON\n{}\n",
                      escaped("Every object has a schema_version, now 1. Within a version fields may be added; none is "
                              "renamed, removed or given another meaning or unit. docs/json.md of the sources "
                              "describes all of them. What is not known is null. Notes, progress and errors go to "
                              "stderr."));
  text += ".SH EXAMPLES\n";
  for (const Entry& example : examples)
    text += fmt::format(".PP\n{}:\n.EX\n{}\n.EE\n", escaped(example.text), escaped(example.term));
  return text;
}

}  // namespace

Command add_manual_command(App& root) {
  auto* const app = root.add_subcommand("manual", "The manual as a man page (pipe it to man -l -)");
  return {app, [&root] {
            print_data(manual(option_tree(root)));
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli
