#include "backends/launch/host_names.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "backends/patient_call.hpp"

namespace distattn::backends::launch {
namespace {

struct NameAnswer {
  Addresses addresses;
  std::string unknown;
};

NameAnswer ask(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error == 0)
    return {Addresses(found, [](const addrinfo* all) { ::freeaddrinfo(const_cast<addrinfo*>(all)); }), ""};
  return {nullptr, error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)};
}

/// Questions that are under way, each asked once at a time however often it is waited for.
class Questions {
 public:
  using Question = std::shared_ptr<PatientCall<NameAnswer>>;

  static Questions& of_process() {
    static auto* const questions = new Questions;  // never destroyed: threads may outlive main's statics
    return *questions;
  }

  Question begin(const std::string& host) {
    const std::scoped_lock lock(mutex_);
    const auto under_way = open_.find(host);
    if (under_way != open_.end()) {
      Question question = under_way->second;
      open_.erase(under_way);  // its answer can be taken once
      return question;
    }
    return std::make_shared<PatientCall<NameAnswer>>("look up a host", [host] { return ask(host, 0); });
  }
  void put_back(const std::string& host, Question question) {
    const std::scoped_lock lock(mutex_);
    open_.emplace(host, std::move(question));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Question> open_;
};

}  // namespace

Addresses look_up(const std::string& host, Clock::time_point deadline, std::string& unknown) {
  if (const NameAnswer numeric = ask(host, AI_NUMERICHOST); numeric.addresses) return numeric.addresses;
  const auto question = Questions::of_process().begin(host);
  if (!question->returns_before(deadline)) {
    Questions::of_process().put_back(host, question);
    unknown = "no name server has said its address yet";
    return nullptr;
  }
  const NameAnswer answer = question->take();
  unknown = answer.unknown;
  return answer.addresses;
}

}  // namespace distattn::backends::launch
