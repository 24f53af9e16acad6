#pragma once
/// A transport that reaches host memory alone, as UCX does: for what devices with memory of their own do about it.

#include "distattn/engine.hpp"

namespace distattn::test {

class HostOnly : public Transport {
 public:
  /// `over` must outlive it.
  explicit HostOnly(Transport& over) : over_(over) {}

  std::string_view name() const override { return "host only"; }
  Rank rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::host; }
  void prepare(BufferTable& buffers) override { over_.prepare(buffers); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    DISTATTN_EXPECT(buffers.space() == MemorySpace::host);
    return over_.submit(step, buffers, after);
  }
  void abort(const Error& error) noexcept override { over_.abort(error); }
  void on_failure(std::function<void(const Error&)> listener) override {
    listens = static_cast<bool>(listener);
    over_.on_failure(std::move(listener));
  }

  bool listens = false;  ///< whether it would tell somebody of a failure

 private:
  Transport& over_;
};

}  // namespace distattn::test
