#pragma once
/// C API: the attention handle, and how its failures end the communicator.

#include <memory>

#include "distattn/attention.hpp"
#include "distattn/registry.hpp"
#include "handles.hpp"

struct distattn_attention {
  std::shared_ptr<distattn::Device> device;  ///< that handles on one layout share
  distattn::Attention attention;
  std::shared_ptr<distattn_comm::Ending> ending;
};

namespace distattn::c_api {

/// What a caller's structs say. Throws Error(usage).
Problem problem_of(const distattn_problem* pointer);
DeviceOptions device_options_of(const distattn_options& given, const distattn_comm& comm);

inline const Attention& attention_of(const distattn_attention* handle) {
  return required(handle, "attention").attention;
}

/// The handle's plan, which has that pass.
inline const AttentionPlan& plan_of(const Attention& attention, Pass pass) {
  if (!attention.plan().has(pass)) {
    refuse("the handle has no backward pass (options.backward was 0): create it with 1");
  }
  return attention.plan();
}

/// What fails, but for usage, ends the communicator too, also one that would not remember it: a caller's callbacks.
template <class Body>
auto ending_with(distattn_comm::Ending& ending, const Body& body) {
  try {
    return body();
  } catch (...) {
    const Error error = as_error(std::current_exception());
    if (error.kind() != ErrorKind::usage) ending.end(error);
    throw;
  }
}

template <class Body>
auto collective(distattn_comm::Ending& ending, const Body& body) {
  ending.check();
  return ending_with(ending, body);
}

}  // namespace distattn::c_api
