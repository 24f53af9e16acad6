#include "backends/ucx/library.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::ucx {
namespace {

constexpr const char* library_name = "libucp.so.0";

/// UCX takes signals while it is loaded: those of faults, and SIGHUP for its debugger. They stay whose they are.
class SignalActions {
 public:
  SignalActions() {
    for (int signal = 1; signal < NSIG; ++signal)
      known_[index(signal)] = ::sigaction(signal, nullptr, &of(signal)) == 0;
  }
  ~SignalActions() {
    for (int signal = 1; signal < NSIG; ++signal) {
      if (known_[index(signal)]) ::sigaction(signal, &of(signal), nullptr);
    }
  }
  SignalActions(const SignalActions&) = delete;
  SignalActions& operator=(const SignalActions&) = delete;

 private:
  struct sigaction& of(int signal) {
    return actions_[index(signal)];
  }
  std::array<struct sigaction, NSIG> actions_{};
  std::array<bool, NSIG> known_{};
};

/// UCX aborts where it cannot open its log. A name with % is completed by UCX, as "stdout" is understood.
void expect_log_to_open() {
  constexpr const char* variable = "UCX_LOG_FILE";
  const char* const set = std::getenv(variable);
  std::string_view name = set != nullptr ? set : "";
  if (name.starts_with("file:")) name.remove_prefix(5);
  const std::filesystem::path file(name.substr(0, name.find(':')));
  if (file.empty() || file == "stdout" || file == "stderr") return;
  const bool complete = file.native().find('%') == std::string::npos;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const bool exists = complete && ::access(file.c_str(), F_OK) == 0;
  if (folder.native().find('%') != std::string::npos) return;
  if (::access(exists ? file.c_str() : folder.c_str(), exists ? W_OK : W_OK | X_OK) == 0) return;
  throw Error(ErrorKind::environment, fmt::format("{}={} cannot be written ({}): name a file that can, or unset it",
                                                  variable, set, std::strerror(errno)));
}

/// UCX says of a hidden /proc that input or output failed.
void expect_machine_to_have_a_name() {
  constexpr const char* file = "/proc/sys/kernel/random/boot_id";
  if (::access(file, R_OK) == 0) return;
  throw Error(ErrorKind::environment, fmt::format("UCX cannot tell machines apart ({}: {}): let this process see /proc",
                                                  file, std::strerror(errno)));
}

/// Global, as if it were linked: what is loaded before it, to trace its calls, stands before it. The folder that it was
/// built with is for those who have not said where their libraries are.
void open_library() {
  const SignalActions kept;
  std::string why;
  for (const std::string& file : {std::string(library_name), std::string(DISTATTN_UCX_FOLDER "/") + library_name}) {
    if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    const char* const told = ::dlerror();
    if (why.empty()) why = told != nullptr ? told : file;
  }
  throw Error(ErrorKind::environment,
              fmt::format("UCX cannot be loaded ({}): install it, or add its folder to LD_LIBRARY_PATH", why));
}

template <class Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  if (function != nullptr) return;
  throw Error(ErrorKind::environment,
              fmt::format("{} has no {} (it is older than UCX {}.{}, which distattn was built with): install that",
                          library_name, name, UCP_API_MAJOR, UCP_API_MINOR));
}

Library load() {
  expect_machine_to_have_a_name();
  expect_log_to_open();
  open_library();
  Library library;
  find("ucp_get_version", library.get_version);
  find("ucp_config_read", library.config_read);
  find("ucp_config_modify", library.config_modify);
  find("ucp_config_release", library.config_release);
  find("ucp_init_version", library.init_version);
  find("ucp_cleanup", library.cleanup);
  find("ucp_context_query", library.context_query);
  find("ucp_mem_map", library.mem_map);
  find("ucp_mem_unmap", library.mem_unmap);
  find("ucp_worker_create", library.worker_create);
  find("ucp_worker_destroy", library.worker_destroy);
  find("ucp_worker_get_address", library.worker_get_address);
  find("ucp_worker_release_address", library.worker_release_address);
  find("ucp_worker_progress", library.worker_progress);
  find("ucp_worker_flush_nbx", library.worker_flush_nbx);
  find("ucp_ep_create", library.ep_create);
  find("ucp_ep_close_nbx", library.ep_close_nbx);
  find("ucp_tag_send_nbx", library.tag_send_nbx);
  find("ucp_tag_recv_nbx", library.tag_recv_nbx);
  find("ucp_tag_probe_nb", library.tag_probe_nb);
  find("ucp_request_cancel", library.request_cancel);
  find("ucp_request_free", library.request_free);
  find("ucs_status_string", library.status_string);
  find("ucs_global_opts_set_value", library.global_opts_set_value);
  unsigned major = 0, minor = 0, release = 0;
  library.get_version(&major, &minor, &release);
  library.version = fmt::format("{}.{}.{}", major, minor, release);
  return library;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace distattn::backends::ucx
