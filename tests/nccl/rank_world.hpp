#pragma once
/// Ranks as threads, each with an emulated GPU of its own and NCCL's stand-in between them.

#include <functional>
#include <optional>

#include "backends/nccl/library.hpp"
#include "distattn/bootstrap.hpp"
#include "distattn/engine.hpp"
#include "simt/emulated_driver.hpp"

namespace distattn::test {

const backends::nccl::Library& standin();

/// The emulated GPU of the rank that this thread is. Only inside run_nccl_ranks().
simt::EmulatedDriver& own_gpu();

using RankBody = std::function<void(Rank, Transport&)>;

struct NcclWorld {
  std::uint64_t seed = 1;
  bool one_gpu = false;                 ///< which all ranks would share
  std::optional<MemorySpace> far = {};  ///< what another transport reaches that carries far messages
  std::optional<Rank> missing = {};     ///< the control channel holds this rank for silent
  bool keeps_order = true;              ///< if NCCL is new enough
  /// Of the control channel that processes have, which then takes the place of the one that fails as it is told.
  std::optional<double> timeout_s = {};
};

/// As run_ranks(), over NcclTransport.
void run_nccl_ranks(int ranks, const RankBody& body, const NcclWorld& world = {});

}  // namespace distattn::test
