#include "cli/options/launch_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {
namespace {

std::string names_of(BackendKind kind) {
  std::vector<std::string> names;
  for (const BackendInfo& info : known_backends(kind)) names.push_back(info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A backend of that kind that is usable here.
BackendInfo usable(BackendKind kind, std::string_view option, std::string_view name) {
  const std::optional<BackendInfo> info = find_backend(kind, name);
  if (!info) refuse(fmt::format("{} {} (unknown): choose one of {}", option, name, names_of(kind)));
  if (info->usable) return *info;
  if (info->misconfigured) throw Error(*info->misconfigured, info->why);
  throw Error(ErrorKind::environment,
              fmt::format("{} {} cannot be used here ({}): see distattn info for others", option, name, info->why));
}

/// As options take it.
OptionChoice choice_of(const BackendInfo& info) {
  return info.argument.empty() ? OptionChoice(info.name) : begun(info.name + ":", info.argument);
}

/// A bootstrap's name, with what must follow it.
std::string bootstrap_of(std::string_view option, std::string_view text) {
  const BackendInfo info = usable(BackendKind::bootstrap, option, text.substr(0, text.find(':')));
  const bool complete = info.argument.empty() ? text == info.name : text.size() > info.name.size() + 1;
  if (complete) return std::string(text);
  refuse(fmt::format("{} {} (its form is {}): give it", option, text, choice_of(info).form));
}

/// What a flag does that chooses `value`.
template <class T>
std::function<void(bool)> given_as(T value, T& into) {
  return [value, usual = into, &into](bool given) { into = given ? value : usual; };
}

}  // namespace

Values known_names(BackendKind kind, const std::string& between) {
  const auto choices = [kind] {
    OptionChoices all;
    for (const BackendInfo& info : known_backends(kind)) {
      const std::string base = info.name.substr(0, info.name.find(':'));
      const auto whole =
          std::find_if(all.begin(), all.end(), [&](const auto& choice) { return choice.words[0] == base; });
      if (base == info.name || whole == all.end()) {
        all.push_back(choice_of(info));
      } else {  // backends that differ in what they compute on are one choice
        whole->form = base + "[:SPACE]";
        whole->words.push_back(info.name);
      }
    }
    return all;
  };
  return {"", choices, between};
}

std::string given_text(const ComputeOptions& options) {
  return options.backend.empty() ? "" : ", --backend " + options.backend;
}

void add_meeting_options(App& app, ComputeOptions& options) {
  const auto parse_transport = [](std::string_view option, std::string_view text) {
    return usable(BackendKind::transport, option, text).name;
  };
  const auto parse_timeout = [](std::string_view option, std::string_view text) {
    const double seconds = parse_number(option, text);
    if (seconds <= 0) refuse(fmt::format("{} {} (not above 0): give a number of seconds", option, text));
    return seconds;
  };
  add_value(app, "--transport", options.transport, parse_transport,
            "What carries messages: inproc between threads; the others between processes (default: best usable)",
            known_names(BackendKind::transport), Group::device);
  add_value(app, "--bootstrap", options.bootstrap, bootstrap_of,
            "How ranks find each other (default: from the environment)", known_names(BackendKind::bootstrap),
            rarely(Group::device));
  add_value(app, "--timeout", options.timeout_s, parse_timeout,
            "Longest time without progress of an awaited rank; computing is progress, and over NCCL a whole message "
            "(default 60)",
            "SECONDS", rarely(Group::device));
}

void add_threads_option(App& app, ComputeOptions& options) {
  const auto parse_threads = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), 1, DeviceOptions::most_threads));
  };
  add_value(app, "--threads", options.device.threads, parse_threads,
            "Threads a rank computes with (default: cores / ranks)", "N", Group::device);
}

void add_launch_options(App& app, ComputeOptions& options) {
  const auto parse_backend = [](std::string_view option, std::string_view text) {
    return usable(BackendKind::device, option, text).name;
  };
  add_value(app, "--backend", options.backend, parse_backend, "What computes (default: best usable)",
            known_names(BackendKind::device), Group::device);
  const auto parse_provider = [](std::string_view option, std::string_view text) {
    return usable(BackendKind::provider, option, text).name;
  };
  add_value(app, "--provider", options.device.gpu.provider, parse_provider,
            "Whose kernels compute on GPUs; cudnn rounds tiles' gradients to 16 bits (default own)",
            known_names(BackendKind::provider), rarely(Group::device));
  app.add_flag("--deterministic", given_as(GradientOrder::fixed, options.device.gradient_order),
               "Gradients have the same bits in every run, on GPUs too, where that takes longer",
               rarely(Group::device));
  app.add_flag("--graphs", given_as(StepGraphs::always, options.device.gpu.step_graphs),
               "Kernels of a step start as one CUDA graph (GPUs, own kernels)", rarely(Group::device));
  add_threads_option(app, options);
  add_meeting_options(app, options);
}

int choose_threads(int asked, int ranks) { return asked > 0 ? asked : std::max(1, usable_cores() / ranks); }
int choose_threads(int asked, const World& world) { return asked > 0 ? asked : world.cores(); }

}  // namespace distattn::cli
