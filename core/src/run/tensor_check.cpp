#include "core/src/run/tensor_check.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include <fmt/core.h>

namespace distattn {
namespace {

const char* const axes[] = {"batch", "tokens", "heads", "dim"};

bool is_empty(const ConstTensorView& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

/// Whether the bytes between a tensor's first element and its others are numbers that extent_of() can add.
bool is_within_reach(const ConstTensorView& tensor) {
  constexpr std::int64_t most = std::int64_t{1} << 56;  // more than any processor addresses, and four of them add up
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[axis] - 1, tensor.strides[axis], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || reach > most || reach < -most) {
      return false;
    }
  }
  return true;
}

/// Whether some steps along one axis lead to the same place as some along another.
bool meet(const ConstTensorView& tensor, std::size_t a, std::size_t b) {
  const std::int64_t step_a = std::abs(tensor.strides[a]), step_b = std::abs(tensor.strides[b]);
  // One axis lies between the neighbours of the other, as nearly always: nothing need be divided.
  if (step_a >= step_b * tensor.shape[b] || step_b >= step_a * tensor.shape[a]) return false;
  const std::int64_t common = std::gcd(step_a, step_b);
  return step_b / common < tensor.shape[a] && step_a / common < tensor.shape[b];
}

}  // namespace

std::string why_not_strides(const ConstTensorView& tensor, bool is_result) {
  if (is_empty(tensor)) return "";
  const auto& strides = tensor.strides;
  if (!is_within_reach(tensor)) {
    return fmt::format("has strides {}, {}, {}, {} (further than memory reaches): give those of its elements",
                       strides[0], strides[1], strides[2], strides[3]);
  }
  constexpr const char* why = "(results would overwrite each other): give strides, as dense_view does";
  for (std::size_t b = 0; is_result && b < strides.size(); ++b) {
    if (tensor.shape[b] == 1) continue;
    if (strides[b] == 0) return fmt::format("has stride 0 along {} {}", axes[b], why);
    for (std::size_t a = 0; a < b; ++a) {
      if (tensor.shape[a] == 1 || !meet(tensor, a, b)) continue;
      return fmt::format("has stride {} along {} and {} along {} {}", strides[a], axes[a], strides[b], axes[b], why);
    }
  }
  return "";
}

std::string why_not_apart(std::initializer_list<NamedTensor> results) {
  for (auto a = results.begin(); a != results.end(); ++a) {
    for (auto b = results.begin(); b != a; ++b) {
      if (a->tensor.data == nullptr || a->tensor.data != b->tensor.data) continue;
      if (is_empty(a->tensor) || is_empty(b->tensor)) continue;
      return fmt::format("{} and {} begin at the same place (one would overwrite the other): give each its own memory",
                         b->name, a->name);
    }
  }
  return "";
}

}  // namespace distattn
