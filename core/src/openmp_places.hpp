#pragma once
/// The places of processors to which GCC's OpenMP binds threads if OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY asks
/// for that. It binds the program's main thread when it is loaded, as whatever is built with OpenMP loads it, and the
/// threads that this one starts then share its place.

#include <vector>

#include "distattn/host_resources.hpp"

namespace distattn {

/// Empty where nothing is bound, and for OpenMPs of others: those bind no thread before it computes with them.
std::vector<ProcessorSet> openmp_places();

/// The processors of all places, if `bound` is one of several; else `bound`.
ProcessorSet beyond_place(const ProcessorSet& bound, const std::vector<ProcessorSet>& places);

}  // namespace distattn
