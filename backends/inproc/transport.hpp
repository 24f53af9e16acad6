#pragma once
/// One rank's end of the exchange between threads of one process.

#include <memory>

#include "backends/inproc/hub.hpp"
#include "distattn/inproc.hpp"

namespace distattn::backends::inproc {

class InprocTransport final : public Transport {
 public:
  /// `hub` must outlive it.
  InprocTransport(Hub& hub, Rank rank, const InprocOptions& options);

  std::string_view name() const override { return "inproc"; }
  Rank rank() const override { return rank_; }
  int size() const override { return hub_.size(); }
  bool reaches(MemorySpace) const override { return true; }  // devices copy in their own memory
  /// Blocks the lane until the step's messages have been exchanged.
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;
  void abort(const Error& error) noexcept override { hub_.abort(rank_, error); }
  void on_failure(std::function<void(const Error&)> listener) override { hub_.on_failure(rank_, std::move(listener)); }

 private:
  struct ExchangeLane {
    ExchangeLane(Hub& hub, Rank rank, Lane lane, const InprocOptions& options)
        : port(hub, rank, lane, options.delivery_seed) {}
    Exchange exchange;
    Port port;
  };

  Hub& hub_;
  const Rank rank_;
  ExchangeLane near_, far_;
};

}  // namespace distattn::backends::inproc
