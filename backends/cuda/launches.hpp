#pragma once
/// A program's compute steps as kernel launches, made once: running a step looks nothing up and uploads nothing.

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/batches.hpp"
#include "backends/cuda/attend_provider.hpp"
#include "backends/cuda/driver.hpp"
#include "distattn/registry.hpp"
#include "kernels/cuda/attend_kernels.hpp"

namespace distattn::backends::cuda {

/// An attention kernel with its lists, which lie in device memory.
struct TileLaunch {
  const kernels::cuda::AttendKernel* kernel = nullptr;
  kernels::cuda::AttendParams params;
  unsigned grid = 0;
};

/// An operation that a provider computes, with memory that all of them share.
struct ProvidedLaunch {
  std::shared_ptr<const PreparedAttend> attend;
  std::byte* scratch = nullptr;
};

using Launch = std::variant<TileLaunch, ProvidedLaunch, kernels::MergeArgs, kernels::AccumulateArgs,
                            kernels::ConvertArgs, kernels::FillArgs>;

void start_filling(const kernels::FillArgs& args, const Driver& driver, Stream& stream);

/// Which of the kernels of kernels/cuda a device uses.
struct KernelChoice {
  kernels::cuda::Capability capability;
  GradientOrder gradient_order = GradientOrder::any;
  std::string variant = {};  ///< name of the kernel to take where a pass has it
};

/// full: one of the bands, which are disjoint, has all pairs; else partial.
Coverage coverage_of(std::span<const Band> bands, const Run& queries, const Run& keys);

/// What the operations of one launch have in common.
struct TileWork {
  kernels::TileShape shape;
  std::int64_t queries = 0;               ///< at most
  Coverage coverage = Coverage::partial;  ///< full: all of them see all of their keys
};

/// Passes over tiles that make up `pass`, one after the other. Backward: one that adds to dq in any order where there
/// is a kernel for it and it may, else one for dq and one for dk and dv.
std::vector<kernels::cuda::AttendRequest> tile_passes(Pass pass, const TileWork& work, const KernelChoice& choice);

/// What computes them.
std::vector<const kernels::cuda::AttendKernel*> tile_kernels(Pass pass, const TileWork& work,
                                                             const KernelChoice& choice);

/// What tile kernels look at whenever they run.
struct LaunchFlags {
  const int* stop = nullptr;
  const kernels::cuda::DropoutDraw* draw = nullptr;  ///< null: problems have no dropout
};

class Launches {
 public:
  /// Loads all kernels, and uploads the lists of all steps on `stream`, which has to be waited for. What `flags` point
  /// to lies in device memory. `provider` computes tiles; null: the kernels of kernels/cuda.
  Launches(const Batches& batches, std::size_t steps, Driver& driver, Stream& stream, const LaunchFlags& flags,
           AttendProvider* provider, const KernelChoice& choice, StepGraphs graphs);

  /// Starts the step's kernels, in their order. Throws Error(environment) if CUDA refuses.
  void start(std::size_t step, Stream& stream) const;

 private:
  void record_graphs();
  void start_each(std::size_t step, Stream& stream) const;

  Driver& driver_;
  std::vector<std::vector<Launch>> steps_;
  std::vector<std::byte> lists_;  // what device_lists_ holds, kept until it has been copied
  std::shared_ptr<std::byte> device_lists_, scratch_;
  std::vector<std::unique_ptr<Graph>> graphs_;  // by step; null: its launches start one by one
};

}  // namespace distattn::backends::cuda
