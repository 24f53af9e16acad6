#pragma once
/// Pairs of striped tiles under many bands: counted by rows for all key segments at once, not by bands for each.

#include <cstdint>
#include <vector>

#include "distattn/layout.hpp"

namespace distattn {

/// Visible pairs of every tile (i, j), at i·keys + j, where keys are the residues of one stride and going through the
/// rows of all bands is cheaper than asking every tile for every band; else empty.
std::vector<std::int64_t> residue_pairs(const Sharding& sharding, const BandIndex& mask);

}  // namespace distattn
