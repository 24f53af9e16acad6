/// With how many threads a rank computes that nobody told a number: of a device that the library makes, and of a handle
/// of the C API. See resources.py.

#include <cstdio>
#include <filesystem>
#include <iterator>

#include "distattn/distattn.h"
#include "distattn/registry.hpp"

namespace {

int threads_of_process() {
  return static_cast<int>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator()));
}

/// The caller of a device is one of its threads.
int of_library() {
  const int before = threads_of_process();
  const auto device = distattn::make_device("reference", {});
  return 1 + threads_of_process() - before;
}

distattn_status create(void* taken, distattn_comm* comm) {
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.backend = "reference";
  options.schedule = "ring";
  const int before = threads_of_process();
  distattn_attention* attention = nullptr;
  const distattn_status status = distattn_attention_create(&problem, &options, comm, &attention);
  *static_cast<int*>(taken) = 1 + threads_of_process() - before;
  distattn_attention_free(attention);
  return status;
}

}  // namespace

int main() {
  int of_c_api = 0;
  if (distattn_run_ranks(1, create, &of_c_api) != DISTATTN_OK) {
    std::fprintf(stderr, "%s\n", distattn_message());
    return 1;
  }
  std::printf("%d %d\n", of_library(), of_c_api);
}
