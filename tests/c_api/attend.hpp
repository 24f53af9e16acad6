#pragma once
/// What tests of the C API share: one rank's attention through it, compared with float64.

#include <cstdint>
#include <string>
#include <vector>

#include "distattn/distattn.h"

namespace distattn::test {

inline constexpr int heads = 4, kv_heads = 2, dim = 16;
inline constexpr std::int64_t tokens = 53;

distattn_problem small_problem();
/// Both passes, on the reference backend.
distattn_options options_for(const char* schedule);

/// A dense fp32 tensor of any rank, described for the C API.
struct Tensor {
  explicit Tensor(std::vector<std::int64_t> extents);
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  distattn_tensor tensor{};
};

/// What every rank does, forward and backward; user is the options. Returns the status of the first call that fails,
/// DISTATTN_INTERRUPTED where results are wrong.
distattn_status attend(void* user, distattn_comm* comm);
/// The same with a cap, a position bias, sink logits and largest scores.
distattn_status attend_scores(void* user, distattn_comm* comm);
/// Layers with a window, without, and with scores, on one layout.
distattn_status attend_layers(void* user, distattn_comm* comm);
/// attend() by passes that are queued.
distattn_status attend_queued(void* user, distattn_comm* comm);

inline std::string message() { return distattn_message(); }

}  // namespace distattn::test
