#pragma once
/// A device's memory and streams, whatever drives it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "distattn/types.hpp"

namespace distattn::backends {

/// A place in a stream. Thread-safe.
class Mark {
 public:
  virtual ~Mark() = default;
  /// Whether everything before it has ended. Throws what went wrong on the device.
  virtual bool passed() const = 0;
  /// Seconds on the device between two marks that have passed.
  virtual double seconds_since(const Mark& earlier) const = 0;
};

/// Work in order. Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Copies between any two memories that the device reaches, or from and to host memory.
  virtual void copy(void* into, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* into, std::size_t bytes) = 0;
  virtual std::shared_ptr<const Mark> mark() = 0;
  /// What follows starts after `mark` has passed, on whatever stream it is. False, and nothing done, if whoever drives
  /// that stream is another: then the host has to wait.
  virtual bool wait_for(const Mark& mark) = 0;
  /// Returns when everything so far has ended, well or not.
  virtual void finish() noexcept = 0;
};

/// Exchanges overtake kernels where both wait for the device.
enum class StreamPriority : std::uint8_t { normal, high };

/// Whoever drives the device. Thread-safe; outlives what it makes.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual std::string_view name() const = 0;
  /// Where the device's own memory lies.
  virtual MemorySpace space() const = 0;
  /// In space(), or in host memory that the device reaches. 256-byte aligned, not cleared.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, MemorySpace in) = 0;
  virtual std::unique_ptr<Stream> open_stream(StreamPriority priority) = 0;
};

}  // namespace distattn::backends
