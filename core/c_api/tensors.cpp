#include "tensors.hpp"

#include <string>

#include "distattn/error.hpp"

namespace distattn::c_api {
namespace {

// DLPack's DLDeviceType and DLDataTypeCode.
constexpr int dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_cuda_managed = 13;
constexpr int dl_float = 2, dl_bfloat = 4;

[[noreturn]] void refuse_tensor(const char* name, const std::string& why, const char* suggestion) {
  refuse(std::string("tensor ") + name + " " + why + " " + suggestion);
}

DType dtype_of(const distattn_tensor& tensor, const char* name) {
  const int code = tensor.dtype.code, bits = tensor.dtype.bits;
  if (tensor.dtype.lanes == 1) {
    if (code == dl_float && bits == 64) return DType::fp64;
    if (code == dl_float && bits == 32) return DType::fp32;
    if (code == dl_float && bits == 16) return DType::fp16;
    if (code == dl_bfloat && bits == 16) return DType::bf16;
  }
  refuse_tensor(name, "has DLPack type code " + std::to_string(code) + " of " + std::to_string(bits) + " bits",
                "(not supported): pass float64, float32, float16 or bfloat16");
}

MemorySpace space_of(const distattn_tensor& tensor, const char* name) {
  switch (static_cast<int>(tensor.device.device_type)) {
    case dl_cpu:
    case dl_cuda_host:
      return MemorySpace::host;
    case dl_cuda:
    case dl_cuda_managed:
      return MemorySpace::cuda;
    default:
      refuse_tensor(name, "lies on DLPack device " + std::to_string(tensor.device.device_type),
                    "(not supported): pass host or CUDA memory");
  }
}

TensorView view_of(const distattn_tensor& tensor, const char* name, int full_rank) {
  const int rank = tensor.ndim;
  if (rank != full_rank && rank != full_rank - 1) {
    refuse_tensor(name, "has " + std::to_string(rank) + " dimensions",
                  full_rank == 4 ? "(shape): pass [batch, tokens, heads, head_dim] or [tokens, heads, head_dim]"
                                 : "(shape): pass [batch, heads, tokens] or [heads, tokens]");
  }
  if (tensor.shape == nullptr) refuse_tensor(name, "has no shape", "(null): point to its extents");
  std::int64_t shape[4] = {1, 1, 1, 1}, strides[4] = {0, 0, 0, 0};
  std::uint64_t dense = 1;  // wraps: extents that are not the rank's own are refused later
  for (int i = rank - 1; i >= 0; --i) {
    const int axis = i + full_rank - rank;
    shape[axis] = tensor.shape[i];
    strides[axis] = tensor.strides != nullptr ? tensor.strides[i] : static_cast<std::int64_t>(dense);
    dense *= static_cast<std::uint64_t>(tensor.shape[i]);
  }
  if (rank < full_rank) strides[0] = static_cast<std::int64_t>(dense);
  TensorView view;
  if (tensor.data != nullptr) view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.dtype = dtype_of(tensor, name);
  view.space = space_of(tensor, name);
  // Statistics are [batch, heads, tokens], and viewed as [batch, tokens, heads, 1].
  if (full_rank == 3) {
    view.shape = {shape[0], shape[2], shape[1], 1};
    view.strides = {strides[0], strides[2], strides[1], 1};
  } else {
    view.shape = {shape[0], shape[1], shape[2], shape[3]};
    view.strides = {strides[0], strides[1], strides[2], strides[3]};
  }
  return view;
}

/// A number for each head, or for each sequence and head.
TensorView view_of_heads(const distattn_tensor* given, const char* name, int most_rank) {
  if (given == nullptr) return {};
  const int rank = given->ndim;
  if (rank < 1 || rank > most_rank) {
    refuse_tensor(
        name, "has " + std::to_string(rank) + " dimensions",
        most_rank == 1 ? "(shape): pass [heads]" : "(shape): pass [batch, heads], or [heads] of one sequence");
  }
  if (given->shape == nullptr) refuse_tensor(name, "has no shape", "(null): point to its extents");
  const std::int64_t batch = rank == 2 ? given->shape[0] : 1, heads = given->shape[rank - 1];
  const std::int64_t stride = given->strides != nullptr ? given->strides[rank - 1] : 1;
  TensorView view;
  if (given->data != nullptr) view.data = static_cast<std::byte*>(given->data) + given->byte_offset;
  view.dtype = dtype_of(*given, name);
  view.space = space_of(*given, name);
  view.shape = {batch, 1, heads, 1};
  view.strides = {rank == 2 && given->strides != nullptr ? given->strides[0] : heads, heads, stride, 1};
  return view;
}

TensorView tensor(const distattn_tensor* given, const char* name) {
  return given == nullptr ? TensorView{} : view_of(*given, name, 4);
}

}  // namespace

Bindings bindings_of(const distattn_tensors& tensors) {
  Bindings bindings;
  bindings.q = tensor(tensors.q, "q");
  bindings.k = tensor(tensors.k, "k");
  bindings.v = tensor(tensors.v, "v");
  bindings.o = tensor(tensors.o, "o");
  if (tensors.lse != nullptr) bindings.lse = view_of(*tensors.lse, "lse", 3);
  if (tensors.lse_low != nullptr) bindings.lse_low = view_of(*tensors.lse_low, "lse_low", 3);
  bindings.dropout_seed = tensors.dropout_seed;
  if (tensors.dropout_offset > 0xffffffffu) {
    refuse("dropout_offset is " + std::to_string(tensors.dropout_offset) + " (it has 32 bits): count calls from 0");
  }
  bindings.dropout_offset = static_cast<std::uint32_t>(tensors.dropout_offset);
  bindings.sink_logits = view_of_heads(tensors.sink_logits, "sink_logits", 1);
  bindings.dsink_logits = view_of_heads(tensors.dsink_logits, "dsink_logits", 1);
  bindings.max_logit = view_of_heads(tensors.max_logit, "max_logit", 2);
  bindings.d_o = tensor(tensors.d_o, "d_o");
  bindings.dq = tensor(tensors.dq, "dq");
  bindings.dk = tensor(tensors.dk, "dk");
  bindings.dv = tensor(tensors.dv, "dv");
  return bindings;
}

ServingCall serving_tensors_of(const distattn_serving_call& call) {
  ServingCall views;
  views.q = tensor(call.q, "q");
  views.k = tensor(call.k, "k");
  views.v = tensor(call.v, "v");
  views.o = tensor(call.o, "o");
  if (call.lse != nullptr) views.lse = view_of(*call.lse, "lse", 3);
  if (call.lse_low != nullptr) views.lse_low = view_of(*call.lse_low, "lse_low", 3);
  views.sink_logits = view_of_heads(call.sink_logits, "sink_logits", 1);
  return views;
}

}  // namespace distattn::c_api
