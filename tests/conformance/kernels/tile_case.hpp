#pragma once
/// One attend and its backward as a case: shapes, positions, bands. Runs on any table of kernels and on the oracle.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace distattn::test {

using kernels::HostKernels;

struct CaseSide {
  Run keys;
  std::vector<Band> bands;
};

struct TileCase {
  std::string name;
  kernels::TileShape shape;
  Run queries;
  std::vector<CaseSide> sides;
  bool carry = false;  ///< forward starts from a partial, backward from gradients
  unsigned seed = 1;
};

/// Inputs as doubles, already rounded to the case's element type.
struct CaseInputs {
  std::vector<double> q, d_o;
  std::vector<std::vector<double>> k, v;  ///< of each side
  std::vector<double> o, lse, lse_low;    ///< the carry; empty without; no lse_low: zeros
  std::vector<double> dq;
  std::vector<std::vector<double>> dk, dv;
};
CaseInputs inputs_of(const TileCase& tile);

struct CaseResults {
  std::vector<double> o, lse;
  std::vector<double> lse_low;  ///< empty in fp64
  std::vector<double> dq;
  std::vector<std::vector<double>> dk, dv;
  /// dq and dk as they would be with delta = 0: what dP − delta leaves where little cancels. Only of exact results.
  std::vector<double> dq_terms;
  std::vector<std::vector<double>> dk_terms;
};

/// How arrays of rows lie in memory.
enum class Arrangement : std::uint8_t {
  packed,  ///< [batch][head][token][dim], 64-byte aligned
  spread,  ///< [batch][token][head][dim], with gaps, aligned to an element
};

/// Forward, delta and backward with `kernels` in the case's element type. The backward pass takes `global`: the exact
/// (o, lse), as another implementation's. Throws if something is written between spread rows.
CaseResults run_case(const TileCase& tile, const CaseInputs& inputs, const HostKernels& kernels, kernels::Team& team,
                     const CaseResults* global, Arrangement arrangement = Arrangement::packed);
/// The same in float64 by the reference kernels.
CaseResults run_exactly(const TileCase& tile, const CaseInputs& inputs, kernels::Team& team);

/// L2 distance relative to the larger of |exact| and |terms|; nothing but zeros: 0. NaN where exactly one of two
/// elements is NaN or infinite.
double relative_l2(const std::vector<double>& value, const std::vector<double>& exact,
                   const std::vector<double>& terms = {});
/// Largest absolute difference; equal infinities, and two NaN, differ by 0.
double largest_difference(const std::vector<double>& value, const std::vector<double>& exact);

/// What the case may be wrong by: inputs are the same in both, so that only sums round.
double tolerance_of(const TileCase& tile, DType coefficients);

}  // namespace distattn::test
