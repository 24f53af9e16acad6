#pragma once
/// Near messages over NCCL, far messages over a transport for slower links.

#include <memory>

#include "backends/cuda/staged_transport.hpp"
#include "backends/nccl/transport.hpp"

namespace distattn::backends::nccl {

/// Both halves are of the same ranks and end together.
class SplitTransport final : public Transport {
 public:
  /// Where `far` reaches host memory alone, its messages pass through pinned memory.
  SplitTransport(const Library& library, cuda::Driver& driver, Bootstrap& bootstrap, std::unique_ptr<Transport> far);
  ~SplitTransport() override;

  std::string_view name() const override { return name_; }
  Rank rank() const override { return near_.rank(); }
  int size() const override { return near_.size(); }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::cuda; }
  void prepare(BufferTable& buffers) override;
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override;
  void computing(int number) noexcept override { near_.computing(number); }
  void resting() noexcept override { near_.resting(); }
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  const std::unique_ptr<Transport> over_;
  const std::string name_;
  NcclTransport near_;
  const std::unique_ptr<cuda::StagedTransport> staged_;
  Transport& far_;
};

}  // namespace distattn::backends::nccl
