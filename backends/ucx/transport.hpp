#pragma once
/// Ranks in different processes, over whatever UCX finds between them.

#include <thread>

#include "backends/ucx/lane.hpp"
#include "backends/ucx/segment_folder.hpp"
#include "backends/ucx/set_up.hpp"
#include "distattn/bootstrap.hpp"
#include "distattn/engine.hpp"

namespace distattn::backends::ucx {

class UcxTransport final : public Transport {
 public:
  /// A collective: the ranks exchange the addresses of their workers. `bootstrap` must outlive it. `gpu_memory`: as
  /// what UCX knows the memory of GPUs, which messages use as it lies if every rank's UCX can.
  explicit UcxTransport(Bootstrap& bootstrap, ucs_memory_type_t gpu_memory = UCS_MEMORY_TYPE_CUDA);
  ~UcxTransport() override;

  std::string_view name() const override { return "ucx"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::host || reaches_gpus_; }
  void prepare(BufferTable& buffers) override { registered(buffers); }
  /// Blocks the lane until the step's messages have been exchanged.
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override;
  void computing(int number) noexcept override { control_.computing(number); }
  void resting() noexcept override { control_.resting(); }
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  const RegisteredMemory* registered(BufferTable& buffers) const;
  void end_lanes() noexcept;
  void serve(const std::stop_token& stop);

  const Rank rank_;
  const int size_;
  Control& control_;
  SegmentFolder segments_;
  SetUp set_up_;  ///< without its workers, which the lanes have
  const ucs_memory_type_t gpu_memory_;
  const bool reaches_gpus_;
  ExchangeLane near_, far_;
  std::jthread serving_;
};

}  // namespace distattn::backends::ucx
