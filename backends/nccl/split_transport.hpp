#pragma once
/// Near messages over one transport between GPUs, as NCCL, far messages over another for slower links.

#include <memory>

#include "backends/cuda/driver.hpp"
#include "backends/streams/staged_transport.hpp"

namespace distattn::backends::nccl {

/// Both halves are of the same ranks and end together. What is not of one lane is the near half's.
class SplitTransport final : public ForwardingTransport {
 public:
  /// Where `far` reaches host memory alone, its messages pass through pinned memory.
  SplitTransport(cuda::Driver& driver, std::unique_ptr<Transport> near, std::unique_ptr<Transport> far);
  ~SplitTransport() override;

  std::string_view name() const override { return name_; }
  void prepare(BufferTable& buffers) override;
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override;
  void on_failure(std::function<void(const Error&)> listener) override;

 private:
  const std::unique_ptr<Transport> over_;
  const std::string name_;
  const std::unique_ptr<Transport> near_;
  const std::unique_ptr<StagedTransport> staged_;
  Transport& far_;
};

}  // namespace distattn::backends::nccl
