#include "distattn/registry.hpp"

#include <algorithm>
#include <utility>

#include "backends/registration.hpp"
#include "backends/running_clock.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace backends {

// Each built backend defines its register_<name>(); no static initialisers, so that a static library keeps them.
#define DISTATTN_BUILT(identifier, kind, name) Registration register_##identifier();
#define DISTATTN_ABSENT(name, kind, why)
#define DISTATTN_LAUNCHER(identifier) const launch::LauncherVariables& launcher_##identifier();
#include "backends.def"
#undef DISTATTN_BUILT
#undef DISTATTN_ABSENT
#undef DISTATTN_LAUNCHER

static std::vector<Registration> registrations() {
  std::vector<Registration> all;
#define DISTATTN_BUILT(identifier, kind, name) all.push_back(register_##identifier());
#define DISTATTN_ABSENT(name, kind, why) all.push_back({{#name, BackendKind::kind, false, false, why, ""}, {}});
#define DISTATTN_LAUNCHER(identifier)
#include "backends.def"
#undef DISTATTN_BUILT
#undef DISTATTN_ABSENT
#undef DISTATTN_LAUNCHER
  for (const Registration& provider : all) {
    for (Registration& device : all) {
      const bool computes = device.info.kind == BackendKind::device && device.info.name == provider.info.device;
      if (computes) device.info.providers.push_back(provider.info.name);
    }
  }
  return all;
}

std::vector<const launch::LauncherVariables*> launchers() {
  return {
#define DISTATTN_BUILT(identifier, kind, name)
#define DISTATTN_ABSENT(name, kind, why)
#define DISTATTN_LAUNCHER(identifier) &launcher_##identifier(),
#include "backends.def"
#undef DISTATTN_BUILT
#undef DISTATTN_ABSENT
#undef DISTATTN_LAUNCHER
  };
}

}  // namespace backends

std::vector<BackendInfo> known_backends(BackendKind kind) {
  std::vector<BackendInfo> of_kind;
  for (auto& registration : backends::registrations()) {
    if (registration.info.kind == kind) of_kind.push_back(std::move(registration.info));
  }
  return of_kind;
}

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> infos;
  for (auto& registration : backends::registrations()) {
    if (registration.look) registration.look(registration.info);
    BackendInfo& info = infos.emplace_back(registration.info);
    if (!registration.findings || !info.usable) continue;
    try {
      info.why += "; " + registration.findings();
    } catch (const Error& error) {
      info.usable = false;
      info.why = error.what();
    }
  }
  return infos;
}

std::optional<BackendInfo> find_backend(BackendKind kind, std::string_view name) {
  for (auto& registration : backends::registrations()) {
    BackendInfo& info = registration.info;
    if (info.kind != kind || info.name != name) continue;
    if (registration.look) registration.look(info);
    return info;
  }
  return {};
}

std::vector<BackendInfo> built_backends() {
  std::vector<BackendInfo> infos;
  for (const auto& registration : backends::registrations()) {
    if (registration.info.built) infos.push_back(registration.info);
  }
  return infos;
}

namespace {

/// The registration of that kind and name, or the best usable one. `fits`: leaves out those that cannot be made.
template <class Fits>
backends::Registration chosen(BackendKind kind, std::string_view word, std::string_view name, Fits fits) {
  std::string known, reasons;
  for (backends::Registration& registration : backends::registrations()) {
    BackendInfo& info = registration.info;
    if (info.kind != kind) continue;
    const bool asked_for = name.empty() ? fits(registration) : info.name == name;
    if (asked_for && registration.look) registration.look(info);
    if (asked_for && (!name.empty() || info.usable || info.misconfigured)) {
      if (info.misconfigured) throw Error(*info.misconfigured, info.why);
      if (!info.usable) {
        throw Error(ErrorKind::environment, std::string(word) + " " + info.name + " cannot be used here (" + info.why +
                                                "): choose another; distattn info lists them");
      }
      return registration;
    }
    known += (known.empty() ? "" : ", ") + info.name;
    if (asked_for && info.built) reasons += "; " + info.name + ": " + info.why;
  }
  if (name.empty()) {
    throw Error(ErrorKind::environment, "no " + std::string(word) + " is usable here (known: " + known + reasons +
                                            "): distattn info says more");
  }
  refuse("no " + std::string(word) + " is called " + std::string(name) + " (known: " + known +
         "): choose one of these");
}

}  // namespace

double backends::checked_timeout(double seconds) {
  if (!(seconds > 0)) refuse("the timeout is not above 0 (no rank is that fast): give seconds");
  constexpr double years = 1e8;  // as good as for ever, and clocks can count so far
  return std::min(seconds, years);
}

std::string describe(const DeviceOptions& options) {
  const GpuOptions& gpu = options.gpu;
  std::string text;
  const auto add = [&text](bool is_unusual, const std::string& words) {
    if (is_unusual) text += (text.empty() ? "" : ", ") + words;
  };
  add(!gpu.provider.empty(), "provider " + gpu.provider);
  add(options.gradient_order != GradientOrder::any, "deterministic");
  add(gpu.step_graphs != StepGraphs::never, "graphs");
  add(!gpu.variant.empty(), "variant " + gpu.variant);
  add(gpu.stream != nullptr, "a stream");
  return text;
}

std::unique_ptr<Device> make_device(std::string_view name, const DeviceOptions& options) {
  if (options.threads < 0 || options.threads > DeviceOptions::most_threads) {
    refuse("a device of " + std::to_string(options.threads) + " threads (0: its share, at most " +
           std::to_string(DeviceOptions::most_threads) + "): give some");
  }
  if (options.local_ranks < 1 || options.local_rank < 0) {
    refuse("a device of rank " + std::to_string(options.local_rank) + " among " + std::to_string(options.local_ranks) +
           " (ranks of a machine count from 0, and there is one at least): set local_rank and local_ranks");
  }
  const std::string& provider = options.gpu.provider;
  const auto any = [](const auto&) { return true; };
  std::optional<backends::Registration> provided;
  if (!provider.empty()) provided = chosen(BackendKind::provider, "provider", provider, any);
  const auto has_provider = [&](const backends::Registration& r) {
    const std::vector<std::string>& known = r.info.providers;
    return provider.empty() || std::find(known.begin(), known.end(), provider) != known.end();
  };
  const auto found = chosen(BackendKind::device, "backend", name, has_provider);
  if (!has_provider(found)) {
    refuse("backend " + found.info.name + " has no provider " + provider + " (it computes with kernels of one kind) " +
           "leave it out");
  }
  return (provided ? *provided : found).make_device(options);
}

std::unique_ptr<Bootstrap> make_bootstrap(std::string_view name, const BootstrapOptions& options) {
  const auto between_processes = [](const backends::Registration& r) { return r.make_bootstrap != nullptr; };
  const auto found = chosen(BackendKind::bootstrap, "bootstrap", name, between_processes);
  if (!between_processes(found)) {
    refuse("bootstrap " + found.info.name + " does not join processes (its ranks share one): choose another");
  }
  if (found.info.argument.empty() && !options.argument.empty()) {
    refuse("bootstrap " + found.info.name + " takes no " + options.argument + " (its name says all): leave it out");
  }
  BootstrapOptions asked = options;
  asked.timeout_s = backends::checked_timeout(options.timeout_s);
  const backends::RunningClock::Keeper while_they_meet;
  return found.make_bootstrap(asked);
}

std::unique_ptr<Transport> make_transport(std::string_view name, Bootstrap& bootstrap) {
  const auto between_processes = [](const backends::Registration& r) { return r.make_transport != nullptr; };
  const auto found = chosen(BackendKind::transport, "transport", name, between_processes);
  if (!between_processes(found)) {
    refuse("transport " + found.info.name + " does not connect processes (its ranks share one): choose another");
  }
  return found.make_transport(bootstrap);
}

}  // namespace distattn
