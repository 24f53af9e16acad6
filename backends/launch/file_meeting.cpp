#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "backends/identity.hpp"
#include "backends/launch/bootstrap.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/meeting_file.hpp"
#include "backends/patient_call.hpp"

namespace distattn::backends::launch {

std::string node_identity() { return boot_identity() + "/" + namespace_of("net"); }
std::string pid_namespace() { return namespace_of("pid"); }

namespace {

constexpr auto margin = std::chrono::seconds(1);  // for what the file itself waits for to be told as that

/// What `call` returns that works on the file at `path`, whose file system may not answer.
template <class Result>
Result on_file(const std::string& path, Clock::time_point deadline, std::function<Result()> call) {
  const auto late = [&path] {
    return Error(ErrorKind::timeout, fmt::format("{} is not to be had within the timeout (its file system does not "
                                                 "answer): name a file elsewhere",
                                                 path));
  };
  return call_before<Result>(deadline + margin, "use a file", std::move(call), late);
}

struct Arrival {
  std::shared_ptr<MeetingFile> file;
  Place place;
};

}  // namespace

std::unique_ptr<Bootstrap> meet_at_file(const std::string& path, int size, const Variables& variables,
                                        double timeout_s) {
  const auto all_come_by = after_seconds(timeout_s);
  const auto arrive = [path, size, wish = number_in(variables, "DISTATTN_RANK"), all_come_by] {
    auto file = std::make_shared<MeetingFile>(path, size, wish, all_come_by);
    const Place place = file->wait_for_all(all_come_by);
    return Arrival{std::move(file), place};
  };
  const auto [file, place] = on_file<Arrival>(path, all_come_by, arrive);
  const auto announced_by = after_seconds(timeout_s);
  if (place.rank != 0) {
    const auto look = [&path, kept = file, announced_by] {
      const auto read = [kept, announced_by] { return kept->announced(announced_by); };
      return MeetingPoint{on_file<std::vector<Endpoint>>(path, announced_by, read), kept->token(),
                          "it has not said where in " + path};
    };
    return std::make_unique<ProcessBootstrap>("file", place, look, timeout_s);
  }

  // The name is taken away however this ends, so that the next run finds no trace of it.
  struct Remover {
    MeetingFile& file;
    ~Remover() { file.remove(); }
  } const remover{*file};
  const Listening listening = [&, kept = file] {
    try {
      return listen_for_ranks(kept->one_node(), variables);
    } catch (const Error& error) {
      kept->give_up(error, announced_by);
      throw;
    }
  }();
  const auto announce = [kept = file, endpoints = listening.endpoints, announced_by] {
    kept->announce(endpoints, announced_by);
    return true;
  };
  on_file<bool>(path, announced_by, announce);
  return std::make_unique<ProcessBootstrap>("file", place, listening.socket, file->token(), timeout_s);
}

}  // namespace distattn::backends::launch
