/// In the place of the Hopper kernels where sm_90a is not compiled for.

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {

std::vector<AttendKernel> hopper_forward_instances() { return {}; }
std::vector<AttendKernel> hopper_gradients_instances() { return {}; }
std::vector<AttendKernel> hopper_query_gradient_instances() { return {}; }
std::vector<AttendKernel> hopper_wide_gradients_instances() { return {}; }
std::vector<AttendKernel> hopper_general_instances() { return {}; }
std::vector<AttendKernel> hopper_variants() { return {}; }

}  // namespace distattn::kernels::cuda
