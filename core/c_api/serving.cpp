/// C API: serving.

#include "distattn/serving.hpp"

#include <vector>

#include "attention.hpp"
#include "distattn/registry.hpp"
#include "tensors.hpp"

struct distattn_serving {
  std::shared_ptr<distattn::Device> device;
  distattn::Serving serving;
  distattn::Rank rank;
  std::shared_ptr<distattn_comm::Ending> ending;
};

namespace distattn::c_api {
namespace {

/// No option is ignored: those that plan attentions, and those of buffers and streams, mean nothing here.
void check_served_options(const distattn_options& given) {
  const distattn_options defaults = DISTATTN_OPTIONS_INIT;
  const auto refuse_option = [](const char* name) {
    refuse(std::string("options have ") + name + " (serving plans nothing): leave it as in DISTATTN_OPTIONS_INIT");
  };
  if (given.schedule != nullptr) refuse_option("schedule");
  if (given.mode != defaults.mode) refuse_option("mode");
  if (given.node_size != 0) refuse_option("node_size");
  if (given.ahead != 0) refuse_option("ahead");
  if (given.backward != 0) refuse_option("backward");
  if (given.allocate != nullptr || given.release != nullptr) refuse_option("allocate");
  if (given.cuda_stream != nullptr) refuse_option("cuda_stream");
  if (given.deterministic != 0) refuse_option("deterministic");
  if (given.machine != nullptr) refuse_option("machine");
  if (given.memory_bytes != 0) refuse_option("memory_bytes");
  if (given.balance_tokens != -1) refuse_option("balance_tokens");
  if (given.layout != nullptr) refuse_option("layout");
}

std::unique_ptr<distattn_serving> serving_of(const distattn_problem* problem, std::int64_t block,
                                             const distattn_options* options, distattn_comm* comm) {
  required(comm, "comm");
  comm->ending->check();
  const distattn_options given = read(options, DISTATTN_OPTIONS_INIT, "distattn_options");
  check_served_options(given);
  std::shared_ptr<Device> device =
      make_device(given.backend != nullptr ? given.backend : "cpu", device_options_of(given, *comm));
  Serving serving(problem_of(problem), block, *device, *comm->transport);
  return std::make_unique<distattn_serving>(
      distattn_serving{std::move(device), std::move(serving), comm->transport->rank(), comm->ending});
}

void serve(distattn_serving& handle, const distattn_serving_call* pointer) {
  required(pointer, "call");
  handle.ending->check();
  const distattn_serving_call given = read(pointer, DISTATTN_SERVING_CALL_INIT, "distattn_serving_call");
  if (given.requests == nullptr && given.requests_count > 0) {
    refuse("requests is null and has " + std::to_string(given.requests_count) + " entries: pass its address");
  }
  if (given.pages == nullptr && given.pages_count > 0) {
    refuse("pages is null and has " + std::to_string(given.pages_count) + " entries: pass its address");
  }
  std::vector<ServedRequest> requests;
  for (std::size_t i = 0; i < given.requests_count; ++i) {
    const distattn_request& request = given.requests[i];
    if (request.owner < 0 || request.owner > 0x7fffffff) {
      refuse("request " + std::to_string(i) + " is owned by rank " + std::to_string(request.owner) +
             " (ranks count from 0): name one");
    }
    requests.push_back({request.keys, request.queries, static_cast<Rank>(request.owner)});
  }
  ServingCall call = serving_tensors_of(given);
  call.requests = requests;
  call.pages = {given.pages, given.pages_count};
  call.pages_a_request = given.pages_a_request;
  collective(*handle.ending, [&] { handle.serving.attend(call); });
}

}  // namespace
}  // namespace distattn::c_api

using namespace distattn;

extern "C" {

distattn_status distattn_serving_create(const distattn_problem* problem, int64_t block, const distattn_options* options,
                                        distattn_comm* comm, distattn_serving** serving) {
  return c_api::guarded([&] {
    distattn_serving*& handle = c_api::result(serving, "serving");
    handle = c_api::serving_of(problem, block, options, comm).release();
  });
}

void distattn_serving_free(distattn_serving* serving) { delete serving; }

int64_t distattn_serving_stored(const distattn_serving* serving, int64_t tokens) {
  std::int64_t stored = -1;
  c_api::guarded([&] {
    const distattn_serving& handle = c_api::required(serving, "serving");
    if (tokens < 0) refuse(std::to_string(tokens) + " tokens (a length): give 0 or more");
    stored = handle.serving.dealing().stored(tokens, handle.rank);
  });
  return stored;
}

distattn_status distattn_serve(distattn_serving* serving, const distattn_serving_call* call) {
  return c_api::guarded([&] {
    c_api::required(serving, "serving");
    c_api::serve(*serving, call);
  });
}

}  // extern "C"
