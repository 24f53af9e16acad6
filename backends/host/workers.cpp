#include "backends/host/workers.hpp"

#include <algorithm>

namespace distattn::backends {
namespace {

template <class T>
void fill(const kernels::FillArgs& args) {
  std::fill_n(static_cast<T*>(args.into), args.count, static_cast<T>(args.value));
}

}  // namespace

void fill_all(std::span<const kernels::FillArgs> operations) {
  for (const kernels::FillArgs& args : operations) {
    switch (args.dtype) {
      case DType::fp64:
        fill<double>(args);
        break;
      case DType::fp32:
        fill<float>(args);
        break;
      case DType::bf16:
      case DType::fp16:
        DISTATTN_EXPECT(args.value == 0);
        fill<std::uint16_t>(args);
        break;
    }
  }
}

}  // namespace distattn::backends
