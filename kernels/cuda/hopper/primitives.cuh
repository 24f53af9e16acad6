#pragma once
/// What primitives.cuh is, for what only sm_90a has.
///
///   describe_tensor               fills a TensorMap, on the host; a status, 0 when it is good
///   acquire_tensor_map            once a block, before a map in global memory is used
///   init_barrier                  an mbarrier of 8 bytes in shared memory that completes a phase after that many
///                                 arrivals; publish_barriers after the last, then __syncthreads
///   arrive, arrive_expecting      one arrival; the phase also waits for that many bytes to land
///   wait_for_phase                until the phase of that parity has been completed: 0 for the first, then in turn
///   load_box                      the box at (column, row, plane) into shared memory; what lies outside is 0
///   add_box                       fp32 from shared memory, added to global memory; what lies outside is left out
///   commit_stores                 closes a group of add_box; wait_for_stores<newest groups>: shared memory is free
///   store_matrices                stmatrix.x4: the registers that load_matrices fills, to where it reads them
///   fence_proxy                   what this thread has stored in shared memory is seen by copies and products
///   multiply<Element>             wgmma m64nNk16 by a warpgroup, fp32 accumulation: d (+)= a·b, N/8 = pieces of d.
///                                 a: registers as for mma, or a matrix descriptor; b: a descriptor. Major::other:
///                                 the operand's rows (of a) or columns (of b) are contiguous instead of its depth
///   fence_products                before the first multiply after registers that it uses have changed
///   commit_products               closes a group; wait_for_products<newest groups>(d, …): d may be used
///   keep_before_wait              the value, which is not below 0, is computed before the next wait, not behind it
///   more_registers, fewer_registers   setmaxnreg, by a whole warpgroup
///
/// Registers that products use are arrays that live until the products have been waited for.

#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/tensor_map.hpp"

namespace distattn::kernels::cuda::prim {

/// Which index of an operand is contiguous in shared memory.
enum class Major : int { depth = 0, other = 1 };

}  // namespace distattn::kernels::cuda::prim

#if defined(__CUDACC__)
#include "kernels/cuda/hopper/primitives_ptx.cuh"
#else
#include "simt/hopper_primitives.hpp"
#endif
