#pragma once
/// Caches of keys and values in host memory, read where they lie.

#include <vector>

#include "backends/host/workers.hpp"
#include "distattn/cache.hpp"

namespace distattn::backends {

class Caches final : public CacheReader {
 public:
  explicit Caches(Workers& workers) : workers_(workers) {}

  void pack(const Problem& problem, std::span<const CacheRows> operations) override;
  void read(const Problem& problem, std::span<const CacheRead> operations) override;
  void merge(const Problem& problem, const CachePartial& into, const CachePartial& from) override;
  void unpack(const Problem& problem, const ConstTensorView& sink_logits,
              std::span<const CacheResult> operations) override;

 private:
  void merge_sinks(const Problem& problem, const ConstTensorView& sink_logits, std::span<const CacheResult> operations);

  Workers& workers_;
  // Arguments of one call, kept so that the next one allocates nothing.
  std::vector<kernels::RearrangeArgs> moves_;
  std::vector<kernels::KeySide> sides_;
  std::vector<kernels::AttendArgs> reads_;
  std::vector<kernels::SinkArgs> sinks_;
  std::vector<double> logits_;
};

}  // namespace distattn::backends
