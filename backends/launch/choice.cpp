#include "backends/launch/choice.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "backends/launch/rank_variables.hpp"

namespace distattn::backends::launch {
namespace {

/// One of several processes, and nothing says how it may find the others: alone it would do again what each of them
/// does.
Candidate of_nobody(const Variables& variables) {
  Candidate here{"inproc", "no launcher started this process: its ranks are threads", Place{}, {}};
  const auto several = numbered(variables);
  if (several && several->place.size > 1) {
    here.wrong = Error(
        ErrorKind::environment,
        fmt::format(
            "{} (by {}) cannot find the others ({}, and neither is PMIX_NAMESPACE): set MASTER_ADDR and MASTER_PORT to "
            "a host and a free port of rank 0, or give bootstrap file:PATH, or inproc for each alone",
            words_for(*several), several->by->who, lacking(variables, {"MASTER_ADDR", "MASTER_PORT"})));
    return here;
  }
  if (const std::string rank = rank_without_size(variables); !several && !rank.empty())
    here.why += fmt::format(" ({})", rank);
  const auto size = number_in(variables, "WORLD_SIZE");
  if (!several && size.value_or(1) > 1 && variables("MASTER_ADDR") && variables("MASTER_PORT")) {
    here.wrong = Error(ErrorKind::environment,
                       fmt::format("WORLD_SIZE={} says nothing of which rank this is (RANK is not set): set it to 0 to "
                                   "{}, or give bootstrap inproc",
                                   *size, *size - 1));
  }
  return here;
}

Candidate ask(const LauncherVariables& launcher, const Variables& variables) {
  try {
    Started found = launcher.started(variables);
    return {launcher.bootstrap, std::move(found.why), found.place, {}};
  } catch (const Error& error) {
    return {launcher.bootstrap, error.what(), Place{}, error};
  }
}

Candidate nobody(const Variables& variables) {
  try {
    return of_nobody(variables);
  } catch (const Error& error) {
    return {"inproc", error.what(), Place{}, error};
  }
}

}  // namespace

std::vector<Candidate> candidates(const Launchers& launchers, const Variables& variables) {
  Launchers by_nearness = launchers;
  std::stable_sort(by_nearness.begin(), by_nearness.end(), [&](const auto* one, const auto* other) {
    return one->nearness(variables) > other->nearness(variables);
  });
  std::vector<Candidate> all;
  for (const LauncherVariables* launcher : by_nearness) all.push_back(ask(*launcher, variables));
  all.push_back(nobody(variables));
  return all;
}

Candidate started_by(const Launchers& launchers, const Variables& variables) {
  const std::vector<Candidate> all = candidates(launchers, variables);
  const auto first = std::find_if(all.begin(), all.end(), [](const Candidate& one) { return one.place.has_value(); });
  if (first->wrong) throw Error(*first->wrong);
  return *first;
}

Candidate choose(const Launchers& launchers, const Variables& variables) {
  const Candidate first = started_by(launchers, variables);
  if (first.bootstrap == "inproc" || first.place->size != 1) return first;
  return {
      "inproc", fmt::format("{} started this process alone: its ranks are threads", first.bootstrap), first.place, {}};
}

std::vector<std::pair<std::string, std::string>> seen_variables(const Launchers& launchers,
                                                                const Variables& variables) {
  std::vector<std::string> names = rank_variable_names();
  for (const LauncherVariables* launcher : launchers)
    names.insert(names.end(), launcher->names.begin(), launcher->names.end());
  names.insert(names.end(), {"DISTATTN_RANK", "DISTATTN_ADDRESS", "DISTATTN_PORT", "DISTATTN_TOKEN"});
  std::vector<std::pair<std::string, std::string>> seen;
  for (const std::string& name : names) {
    const auto value = variables(name);
    if (!value) continue;
    const bool secret = name == "DISTATTN_TOKEN";
    seen.emplace_back(name, secret ? fmt::format("(a secret of {} characters)", value->size()) : *value);
  }
  return seen;
}

}  // namespace distattn::backends::launch
