#include "backends/ucx/context.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "backends/room_for.hpp"
#include "backends/ucx/library.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::ucx {
namespace {

struct Setting {
  const char *variable, *name, *value;
};

// Without these, UCX gives up shared memory as soon as failures are to be noticed, asks peers whether they live (the
// control channel knows sooner, and 1.13 can crash when it asks one that just died), and lets a lane wait for two
// minutes in connect() where the way to a peer is cut.
constexpr Setting settings[] = {{"UCX_MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"},
                                {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "inf"},
                                {"UCX_TCP_CONN_NB", "TCP_CONN_NB", "y"},
                                {"UCX_TCP_CONN_NB", "CONN_NB", "y"}};

/// What a user has set stays. Settings of one transport have its name before theirs since 1.17 only: the other name is
/// not known.
void set(ucp_config_t* config, const Setting& setting) {
  if (std::getenv(setting.variable) != nullptr) return;
  const ucs_status_t status = library().config_modify(config, setting.name, setting.value);
  if (status != UCS_ERR_NO_ELEM && status != UCS_ERR_INVALID_PARAM) check("ucp_config_modify", status);
}

/// Ends a reason, as ", with UCX_TLS=tcp, UCX_PROTO_ENABLE=n in the environment", or empty if nothing is set there. UCX
/// says that it fails, and its log alone says why.
std::string given_settings() {
  std::vector<std::string_view> given;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view setting = *each;
    if (setting.starts_with("UCX_") && !setting.starts_with("UCX_LOG_LEVEL=")) given.push_back(setting);
  }
  std::sort(given.begin(), given.end());
  return given.empty() ? "" : fmt::format(", with {} in the environment", fmt::join(given, ", "));
}

/// UCX itself aborts when no more files may be opened, or calls it something else.
void expect_files_to_be_left() {
  constexpr std::int64_t needed = 24;  // measured with UCX 1.13 on one machine: 21 with its default transports
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::error_code failure;
  const std::filesystem::directory_iterator open("/proc/self/fd", failure);
  const bool none_left = failure == std::errc::too_many_files_open;
  if (failure && !none_left) return;  // without /proc nobody counts them
  const auto most = static_cast<std::int64_t>(limit.rlim_cur);
  // More are open than the limit says where it was lowered since.
  const std::int64_t left = none_left ? 0 : std::max<std::int64_t>(0, most - std::distance(begin(open), end(open)));
  if (left >= needed) return;
  throw Error(ErrorKind::environment,
              fmt::format("UCX may open {} more files of {} (it needs about {}): raise the limit, as ulimit -n does",
                          left, most, needed));
}

}  // namespace

void check(const char* what, ucs_status_t status) {
  if (status == UCS_OK) return;
  throw Error(ErrorKind::environment,
              fmt::format("{} failed ({}{}): see UCX_TLS and UCX_NET_DEVICES, ucx_info -d, or what UCX_LOG_LEVEL=error "
                          "says",
                          what, library().status_string(status), given_settings()));
}

Context::Context(int ranks, const std::optional<std::string>& segments) {
  expect_files_to_be_left();
  expect_room_for("UCX");
  // What UCX logs when a peer dies says less than our own error, in several lines.
  if (std::getenv("UCX_LOG_LEVEL") == nullptr)
    check("UCX_LOG_LEVEL", library().global_opts_set_value("LOG_LEVEL", "fatal"));
  ucp_config_t* config = nullptr;
  check("ucp_config_read", library().config_read(nullptr, nullptr, &config));
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> release(config, library().config_release);
  for (const Setting& setting : settings) set(config, setting);
  // Where a user's settings let peers open segments by name, a folder that goes is of no use.
  if (segments && !segments->empty() && std::getenv("UCX_POSIX_USE_PROC_LINK") == nullptr) {
    for (const char* name : {"POSIX_DIR", "DIR"}) set(config, {"UCX_POSIX_DIR", name, segments->c_str()});
  }
  // A process that is killed between making a segment of System V and marking it leaves it for ever, with a name that
  // says nothing of who made it; what is in /dev/shm carries as much and is removed by the next run.
  set(config, {"UCX_TLS", "TLS", segments ? "^sysv" : "^sm"});

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG;
  params.mt_workers_shared = 1;
  params.estimated_num_eps = index(ranks);
  ucp_context_h context = nullptr;
  check("ucp_init", library().init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context));
  context_.reset(context, library().cleanup);

  ucp_context_attr_t built{};
  built.field_mask = UCP_ATTR_FIELD_THREAD_MODE | UCP_ATTR_FIELD_MEMORY_TYPES;
  check("ucp_context_query", library().context_query(context, &built));
  if (built.thread_mode != UCS_THREAD_MODE_MULTI) {
    throw Error(ErrorKind::environment,
                "this UCX cannot serve several threads (it was built without --enable-mt): install one that can, with "
                "Spack ucx+thread_multiple");
  }
  memory_types_ = built.memory_types;
}

RegisteredMemory::RegisteredMemory(const Context& context, void* memory, std::size_t bytes, ucs_memory_type_t type)
    : context_(context.share()), type_(type) {
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory;
  params.length = bytes;
  params.memory_type = type;
  const ucs_status_t status = library().mem_map(context_.get(), &params, &handle_);
  if (status == UCS_OK) return;
  if (type == UCS_MEMORY_TYPE_HOST) check("ucp_mem_map", status);
  throw Error(ErrorKind::environment,
              fmt::format("ucp_mem_map of {} bytes of a GPU failed ({}): set UCX_TLS=^cuda, and messages go through "
                          "host memory",
                          bytes, library().status_string(status)));
}

RegisteredMemory::~RegisteredMemory() { library().mem_unmap(context_.get(), handle_); }

}  // namespace distattn::backends::ucx
