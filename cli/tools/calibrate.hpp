#pragma once
/// From measurements to the description of this machine, and to where it is stored.

#include <string>
#include <vector>

#include "distattn/machine.hpp"

namespace distattn {

/// What was measured on this machine while all of its cores were busy.
struct Measurements {
  struct Kernel {
    DType dtype = DType::fp32;
    Pass pass = Pass::forward;
    Coverage coverage = Coverage::full;
    double tile = 0;                                        ///< side of the tile, in tokens
    double head_dim = 0;                                    ///< mean of the keys' and the values' dimension
    double seconds = 0;                                     ///< time of one thread for a tile of one head of a launch
    double flops = 0;                                       ///< FLOPs of the tile's visible pairs
    double computed_flops = 0;                              ///< FLOPs of the pairs that the kernel computes
    double computed_pairs = 0;                              ///< pairs that the kernel computes
    std::vector<double> by_rank{};                          ///< seconds, if ranks in several processes measured them
    double tiles = 0;                                       ///< of one head each, in the launch; 0: not known
    double flops_per_s() const { return flops / seconds; }  ///< NaN if nothing was measured
  };
  std::vector<Kernel> kernels;  ///< of several for the same kind and tile, the fastest counts
  TileCosts tiles;
  FewQueries few;
  Link copies;                                      ///< between ranks of one process; bytes_per_s is 0 if not measured
  std::map<std::string, MeasuredLinks> transports;  ///< between ranks that are processes
  double memory_bytes_per_s = 0;                    ///< rate of one thread that merges
  std::string backend;                              ///< backend that was measured
  std::string what;                                 ///< backend, head dimension, heads: how it was measured
  std::string when;                                 ///< as Machine::measured
};

/// nominal_machine() with its figures replaced by those that were measured. Element types that were not measured keep
/// their nominal rates. Rates never fall from a tile to a larger one: measured rates that do are averaged. Ranks whose
/// tiles took other times than the mean's have speeds, over the transport that was measured.
Machine describe(const Measurements& measurements);

/// Creates the folder of the calibration. Throws Error(environment) if a calibration could not be stored there. Call it
/// before measuring.
void require_calibration_folder();
/// Stores a calibration atomically in place of an earlier one. Throws Error(environment) when it cannot be written.
void store_calibration(const Machine& machine);

/// The time now, in the form of Machine::measured.
std::string utc_now();

}  // namespace distattn
