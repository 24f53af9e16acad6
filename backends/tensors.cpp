#include "backends/tensors.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "distattn/error.hpp"

namespace distattn::backends {
namespace {

bool overlap(const ConstTensorView& a, const ConstTensorView& b) {
  const Extent one = extent_of(a), other = extent_of(b);
  const std::less<const std::byte*> before;
  return before(one.begin, other.end) && before(other.begin, one.end);
}

}  // namespace

ConstTensorView view(const Bindings& bindings, Tensor tensor) {
  switch (tensor) {
    case Tensor::q:
      return bindings.q;
    case Tensor::k:
      return bindings.k;
    case Tensor::v:
      return bindings.v;
    case Tensor::d_o:
      return bindings.d_o;
    case Tensor::sink_logits:
      return bindings.sink_logits;
    case Tensor::o:
    case Tensor::lse:
    case Tensor::lse_low:
    case Tensor::dq:
    case Tensor::dk:
    case Tensor::dv:
    case Tensor::dsink_logits:
      break;
  }
  return result_view(bindings, tensor);
}

TensorView result_view(const Bindings& bindings, Tensor tensor) {
  switch (tensor) {
    case Tensor::o:
      return bindings.o;
    case Tensor::lse:
      return bindings.lse;
    case Tensor::lse_low:
      return bindings.lse_low;
    case Tensor::dq:
      return bindings.dq;
    case Tensor::dk:
      return bindings.dk;
    case Tensor::dv:
      return bindings.dv;
    case Tensor::dsink_logits:
      return bindings.dsink_logits;
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::d_o:
    case Tensor::sink_logits:
      break;
  }
  detail::expectation_failed("a tensor that a pass writes", __FILE__, __LINE__);
}

bool may_overlap_inputs(const Bindings& bindings, Tensor result, Pass pass) {
  const TensorView written = result_view(bindings, result);
  constexpr std::array inputs{Tensor::q,   Tensor::k, Tensor::v,   Tensor::sink_logits,
                              Tensor::d_o, Tensor::o, Tensor::lse, Tensor::lse_low};
  const std::size_t count = pass == Pass::forward ? 4 : inputs.size();
  return std::any_of(inputs.begin(), inputs.begin() + count,
                     [&](Tensor input) { return overlap(written, view(bindings, input)); });
}

}  // namespace distattn::backends
