#pragma once
/// From measurements to the description of this machine.

#include <string>
#include <vector>

#include "distattn/machine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What was measured here, all cores busy.
struct Measurements {
  struct Kernel {
    DType dtype = DType::fp32;
    Pass pass = Pass::forward;
    Coverage coverage = Coverage::full;
    double tile = 0;                                        ///< tokens of a tile's side
    double head_dim = 0;                                    ///< the mean of keys' and values'
    double seconds = 0;                                     ///< that one thread takes for a tile of one head
    double flops = 0;                                       ///< of the tile's visible pairs
    double met_flops = 0;                                   ///< of the pairs that are computed
    double met_pairs = 0;                                   ///< those
    double flops_per_s() const { return flops / seconds; }  ///< NaN where nothing was measured
  };
  std::vector<Kernel> kernels;  ///< several of one kind and tile: the fastest counts
  TileCosts tiles;
  FewQueries few;
  Link copies;  ///< between ranks of one process; without bytes per second where not measured
  std::map<std::string, MeasuredLinks> transports;  ///< between ranks that are processes
  double memory_bytes_per_s = 0;                    ///< of one thread that merges
  std::string backend;                              ///< that was measured
  std::string what;                                 ///< backend, head dimension, heads: how it was measured
  std::string when;                                 ///< as Machine::measured
};

/// nominal_machine() with every figure that was measured in its place; element types that were not keep theirs. Rates
/// never fall from a tile to a larger one: where measured ones do, they are averaged.
Machine describe(const Measurements& measurements);

/// The time now, as Machine::measured has it.
std::string utc_now();

}  // namespace distattn
#pragma GCC visibility pop
