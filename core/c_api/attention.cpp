/// C API: the attention handle.

#include <cstdlib>
#include <new>
#include <vector>

#include "distattn/attention.hpp"
#include "distattn/registry.hpp"
#include "handles.hpp"
#include "tensors.hpp"

struct distattn_attention {
  std::unique_ptr<distattn::Device> device;
  distattn::Attention attention;
};

namespace distattn::c_api {
namespace {

DType dtype_of(distattn_dtype dtype, const char* name) {
  switch (dtype) {
    case DISTATTN_FP64:
      return DType::fp64;
    case DISTATTN_FP32:
      return DType::fp32;
    case DISTATTN_BF16:
      return DType::bf16;
    case DISTATTN_FP16:
      return DType::fp16;
  }
  refuse(std::string(name) + " is " + std::to_string(dtype) + " (no distattn_dtype) choose one");
}

Mask mask_of(const distattn_problem& given) {
  if (given.bands != nullptr) {
    std::vector<Band> bands;
    for (std::size_t i = 0; i < given.bands_count; ++i) {
      const distattn_band& band = given.bands[i];
      bands.push_back({band.q0, band.q1, band.k0, band.k1, band.lo, band.hi});
    }
    return band_mask(std::move(bands));
  }
  Mask mask = given.causal != 0 ? causal_mask() : full_mask();
  mask.left = given.window_left;
  mask.right = given.window_right;
  mask.sinks = given.sinks;
  if (given.cu_seqlens != nullptr) mask.documents.assign(given.cu_seqlens, given.cu_seqlens + given.cu_seqlens_count);
  return mask;
}

Problem problem_of(const distattn_problem* pointer) {
  required(pointer, "problem");
  const distattn_problem given = read(pointer, DISTATTN_PROBLEM_INIT, "distattn_problem");
  Problem problem;
  problem.batch = given.batch;
  problem.seq_q = given.seq_q;
  problem.seq_kv = given.seq_kv;
  problem.heads = given.heads;
  problem.kv_heads = given.kv_heads;
  problem.head_dim = given.head_dim;
  problem.value_dim = given.value_dim != 0 ? given.value_dim : given.head_dim;
  problem.dtype = dtype_of(given.dtype, "dtype");
  problem.wire = dtype_of(given.wire, "wire");
  problem.scale = given.scale;
  problem.mask = mask_of(given);
  return problem;
}

Mode mode_of(distattn_mode mode) {
  switch (mode) {
    case DISTATTN_OVERLAPPED:
      return Mode::overlapped;
    case DISTATTN_SERIAL:
      return Mode::serial;
    case DISTATTN_GATHERED:
      return Mode::gathered;
    case DISTATTN_OWN_MODE:
      break;
  }
  refuse("mode is " + std::to_string(mode) + " (no distattn_mode) choose one");
}

AttentionOptions options_of(const distattn_options& given) {
  AttentionOptions options;
  if (given.schedule != nullptr) options.schedule = given.schedule;
  options.own_mode = given.mode == DISTATTN_OWN_MODE;
  if (!options.own_mode) options.mode = mode_of(given.mode);
  options.routes = {given.node_size, given.ahead};
  options.backward = given.backward != 0;
  return options;
}

DeviceOptions device_options_of(const distattn_options& given, const distattn_comm& comm) {
  return {given.threads, given.local_ranks > 0 ? given.local_ranks : comm.local_ranks};
}

const Attention& attention_of(const distattn_attention* handle) { return required(handle, "attention").attention; }

std::vector<std::int64_t> positions_of(const Attention& attention, distattn_side side) {
  return side == DISTATTN_QUERIES ? attention.query_positions() : attention.key_positions();
}

/// The handle's plan, which has that pass.
const AttentionPlan& plan_of(const Attention& attention, Pass pass) {
  if (!attention.plan().has(pass)) {
    refuse("the handle has no backward pass (options.backward was 0) create it with 1");
  }
  return attention.plan();
}

Schedule schedule_of(const Attention& attention, Pass pass) {
  const AttentionPlan& plan = plan_of(attention, pass);
  Schedule schedule{plan.outline(pass), {}};
  for (Rank rank = 0; rank < plan.ranks(); ++rank) schedule.ranks.push_back(plan.program(pass, rank));
  return schedule;
}

/// A copy that distattn_text_free() takes.
char* text_copy(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Bindings read_bindings(const distattn_tensors* tensors) {
  required(tensors, "tensors");
  return bindings_of(read(tensors, DISTATTN_TENSORS_INIT, "distattn_tensors"));
}

}  // namespace
}  // namespace distattn::c_api

using namespace distattn;

extern "C" {

distattn_status distattn_attention_create(const distattn_problem* problem, const distattn_options* options,
                                          distattn_comm* comm, distattn_attention** attention) {
  return c_api::guarded([&] {
    c_api::required(comm, "comm");
    c_api::required(attention, "attention");
    const distattn_options given = c_api::read(options, DISTATTN_OPTIONS_INIT, "distattn_options");
    auto device = make_device(given.backend != nullptr ? given.backend : "", c_api::device_options_of(given, *comm));
    Attention made(c_api::problem_of(problem), c_api::options_of(given), *device, *comm->transport);
    *attention = new distattn_attention{std::move(device), std::move(made)};
  });
}

void distattn_attention_free(distattn_attention* attention) { delete attention; }

int64_t distattn_attention_tokens(const distattn_attention* attention, distattn_side side) {
  return static_cast<int64_t>(c_api::positions_of(attention->attention, side).size());
}

distattn_status distattn_attention_positions(const distattn_attention* attention, distattn_side side,
                                             int64_t* positions) {
  return c_api::guarded([&] {
    c_api::required(positions, "positions");
    const auto all = c_api::positions_of(c_api::attention_of(attention), side);
    std::copy(all.begin(), all.end(), positions);
  });
}

distattn_status distattn_forward(distattn_attention* attention, const distattn_tensors* tensors) {
  return c_api::guarded([&] {
    c_api::required(attention, "attention");
    attention->attention.forward(c_api::read_bindings(tensors));
  });
}

distattn_status distattn_backward(distattn_attention* attention, const distattn_tensors* tensors) {
  return c_api::guarded([&] {
    c_api::plan_of(c_api::attention_of(attention), Pass::backward);
    attention->attention.backward(c_api::read_bindings(tensors));
  });
}

distattn_status distattn_schedule_json(const distattn_attention* attention, distattn_pass pass, char** json) {
  return c_api::guarded([&] {
    c_api::required(json, "json");
    const Pass which = pass == DISTATTN_BACKWARD ? Pass::backward : Pass::forward;
    *json = c_api::text_copy(to_json(c_api::schedule_of(c_api::attention_of(attention), which)));
  });
}

}  // extern "C"
