#include "cli/tools/peak.hpp"

#include <algorithm>

#include "kernels/peak/peak.hpp"

namespace distattn {

namespace {

constexpr double seconds_a_try = 0.005;

}  // namespace

struct PeakMeter::State {
  State(DType dtype, int threads) : team(threads) {
    for (const kernels::MultiplyAdd& each : kernels::multiply_adds(dtype)) {
      for (int attempt = 0; attempt < 3; ++attempt) {
        const double rate = kernels::rate_of(each, team, seconds_a_try);
        if (rate <= best) continue;
        best = rate;
        fastest = each;
      }
    }
  }

  kernels::Team team;
  kernels::MultiplyAdd fastest{};
  double best = 0;
};

PeakMeter::PeakMeter(DType dtype, int threads) : state_(std::make_unique<State>(dtype, threads)) {}
PeakMeter::~PeakMeter() = default;
PeakMeter::PeakMeter(PeakMeter&&) noexcept = default;

void PeakMeter::measure() {
  state_->best = std::max(state_->best, kernels::rate_of(state_->fastest, state_->team, seconds_a_try));
}

double PeakMeter::flops_per_s() const { return state_->best; }
const std::string& PeakMeter::instruction() const { return state_->fastest.name; }
double PeakMeter::read_bytes_per_s() { return kernels::read_rate(state_->team); }

}  // namespace distattn
