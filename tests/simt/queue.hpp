#pragma once
/// What stands behind a stream on the emulator.

#include <cstdint>
#include <functional>

namespace simt {

/// Does work in the order in which it is submitted, at once or later.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void submit(std::function<void()> work) = 0;
  /// Of the next launch.
  virtual std::uint64_t next_seed() = 0;
  /// The same for all queues of one GPU.
  virtual const void* gpu() const = 0;
};

/// Does it at once; every launch has the same seed.
class Immediate final : public Queue {
 public:
  explicit Immediate(std::uint64_t seed) : seed_(seed) {}
  void submit(std::function<void()> work) override { work(); }
  std::uint64_t next_seed() override { return seed_; }
  const void* gpu() const override { return this; }

 private:
  std::uint64_t seed_;
};

}  // namespace simt
