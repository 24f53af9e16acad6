#pragma once
/// What all transports say of a rank that makes no more calls while another waits for it.

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/types.hpp"

namespace distattn::backends {

inline Error peer_has_left(Rank peer, Rank waiting) {
  return {ErrorKind::peer, fmt::format("rank {} has ended its part of the run (it makes no more calls, and rank {} "
                                       "waits for it): make the same calls on all ranks",
                                       peer, waiting)};
}

}  // namespace distattn::backends
