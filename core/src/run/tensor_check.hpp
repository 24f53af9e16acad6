#pragma once
/// What is wrong with the memory of a caller's tensors, whatever they are for. Every call asks: only a reason
/// allocates.

#include <initializer_list>
#include <string>

#include "distattn/tensor.hpp"

namespace distattn {

/// Why elements lie further apart than addresses reach or, of a result, two of them in one place along one axis or two:
/// "has stride 0 along tokens (results would …)". Empty if neither.
std::string why_not_strides(const ConstTensorView& tensor, bool is_result);

struct NamedTensor {
  const char* name;
  ConstTensorView tensor;
};
/// "o and lse begin at the same place (one would …)" where two results do. A result may lie on an input: it is written
/// when that has been read.
std::string why_not_apart(std::initializer_list<NamedTensor> results);

}  // namespace distattn
