#pragma once
/// Measures this machine: tiles of every size on all cores, copies between ranks, merges.

#include <functional>
#include <string>
#include <vector>

#include "cli/run/check.hpp"
#include "cli/tools/calibrate.hpp"
#include "distattn/launch.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {

struct CalibrationOptions {
  std::string backend;
  DeviceOptions device = {.threads = 1};  ///< that is asked what it computes, and that is measured
  std::vector<DType> dtypes = {DType::fp32, DType::bf16, DType::fp16};
  int heads = 4, kv_heads = 4, head_dim = 64, value_dim = 64;
  int runs = 5;  ///< of which the fastest counts: whatever else runs here only slows them
  /// Ranks in other processes, which measure on their cores at the same time: figures are the means of all. Each of
  /// the functions below is a collective of theirs. Null: this process has the machine for itself.
  World* others = nullptr;
};

/// The largest tile that a calibration measures: larger ones reach the same rate. Launches of smaller tiles have as
/// many tokens a rank.
constexpr std::int64_t largest_calibrated_tile = 2048;

// Each runs attentions on ranks that are threads of this process, one a core, and reads their timelines.

/// How many ranks keep this process's share of a machine busy, each with one thread: one a core, or one for a GPU.
int busy_ranks(const CalibrationOptions& options);
/// Forward, and backward where the device computes it, on one tile of `tile` by `tile` tokens: means of all ranks.
std::vector<Measurements::Kernel> measure_tiles(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                std::int64_t tile);
/// The same for the median of several runs, which take a few tenths of a second, of launches that have such tiles
/// alone: what they take at this moment.
std::vector<Measurements::Kernel> sample_launches(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                  std::int64_t tile);
/// Kernels among which the backend has a choice for a pass; one without a name where it has none.
std::vector<KernelVariant> tile_variants(const CalibrationOptions& options, DType dtype, Pass pass, Coverage coverage);
/// How far a pass over some hundred tokens of one key head is from the float64 oracle.
Errors check_tiles(const CalibrationOptions& options, DType dtype, Pass pass, Coverage coverage);
/// Tiles of few queries over keys that stay in caches and over more, without what pairs and tiles are known to take;
/// nothing where the backend has no kernel for them.
FewQueries measure_few(const CalibrationOptions& options, const TileCosts& costs);
/// Exchanges between ranks: bytes a second between two, and what an exchange takes besides where ranks outnumber cores.
Link measure_copies(const CalibrationOptions& options);
/// Exchanges between ranks of several processes over the transport that connects them: of two on one node, and of ranks
/// on two nodes.
MeasuredLinks measure_links(World& world, const CalibrationOptions& options);
/// Merges of partials in fp32: bytes that one thread reads and writes a second.
double measure_merges(const CalibrationOptions& options);

/// All of these, for tiles of every size, as often as fits into a minute. `progress` is told what comes next.
Measurements calibrate(const CalibrationOptions& options, const std::function<void(const std::string&)>& progress);

/// Stores what was measured as the description of this machine. Links that were measured another time, over another
/// transport, stay.
void store(const Measurements& measurements);

}  // namespace distattn::cli
