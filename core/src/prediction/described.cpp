#include "core/src/prediction/described.hpp"

#include <fmt/core.h>

#include "distattn/error.hpp"

namespace distattn {

void check_described(const Machine& machine, int ranks, DType dtype) {
  const bool shares_one_node = machine.cores > 0 && machine.nodes == 1;
  if (!shares_one_node && ranks > machine.ranks()) {
    refuse(fmt::format("{} ranks do not fit machine '{}' (it has {}): choose fewer ranks or another machine", ranks,
                       machine.name, machine.ranks()));
  }
  for (const Pass pass : {Pass::forward, Pass::backward}) machine.rates_of(dtype, pass);
}

}  // namespace distattn
