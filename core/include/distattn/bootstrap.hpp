#pragma once
/// How ranks find each other: rank, size, an exchange of bytes, a barrier. Transports are set up with it.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "distattn/control.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Collectives must be called by all ranks in the same order. A rank that is missing ends them with Error(timeout)
/// that names it.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Rank local_rank() const = 0;
  virtual int local_size() const = 0;  ///< ranks on this node: consecutive
  /// All-gathers: the bytes of every rank, by rank. Lengths may differ.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;
  /// Null if the ranks share a process, where no channel is needed.
  virtual Control* control() { return nullptr; }
};

}  // namespace distattn
#pragma GCC visibility pop
