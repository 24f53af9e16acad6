#include "expected.hpp"

#include <vector>

namespace distattn::cli {
namespace {

/// Some heads of one sequence of an input, as a whole tensor.
class Slice {
 public:
  Slice(const Inputs& inputs, Tensor tensor, std::int64_t b, std::int64_t first_head, std::int64_t heads, DType dtype)
      : view_{dense_view<const std::byte>(nullptr, dtype, 1, inputs.tokens(tensor), heads, inputs.dim(tensor))} {
    const std::size_t row = static_cast<std::size_t>(heads * inputs.dim(tensor)) * size_of(dtype);
    bytes_.resize(static_cast<std::size_t>(inputs.tokens(tensor)) * row);
    for (std::int64_t s = 0; s < inputs.tokens(tensor); ++s) {
      inputs.read(tensor, b, s, first_head, heads, dtype, bytes_.data() + static_cast<std::size_t>(s) * row);
    }
    view_.data = bytes_.data();
  }
  const ConstTensorView& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  ConstTensorView view_;
};

}  // namespace

ExpectedResult expected_of(const Problem& one, const Rounding& rounding, const Inputs& inputs, std::int64_t b,
                           std::int64_t kv_head, Passes passes, int threads) {
  const std::int64_t group = one.heads;
  const Slice q(inputs, Tensor::q, b, kv_head * group, group, one.dtype);
  const Slice k(inputs, Tensor::k, b, kv_head, 1, one.dtype), v(inputs, Tensor::v, b, kv_head, 1, one.dtype);
  if (passes == Passes::forward) return expected_attention(one, rounding, q.view(), k.view(), v.view(), {}, threads);
  const Slice d_o(inputs, Tensor::d_o, b, kv_head * group, group, one.dtype);
  return expected_attention(one, rounding, q.view(), k.view(), v.view(), d_o.view(), threads);
}

}  // namespace distattn::cli
