#pragma once
/// A transport that reaches one memory alone, such as the host's: for what devices with memory of their own do about
/// it.

#include "distattn/engine.hpp"

namespace distattn::test {

class OneMemory : public ForwardingTransport {
 public:
  /// `over` must outlive it.
  explicit OneMemory(Transport& over, MemorySpace space = MemorySpace::host)
      : ForwardingTransport(over), space_(space) {}

  std::string_view name() const override { return "one memory"; }
  bool reaches(MemorySpace space) const override { return space == space_; }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    DISTATTN_EXPECT(buffers.space() == space_);
    return over().submit(step, buffers, after);
  }
  void on_failure(std::function<void(const Error&)> listener) override {
    listens = static_cast<bool>(listener);
    over().on_failure(std::move(listener));
  }

  bool listens = false;  ///< whether it would tell somebody of a failure

 private:
  const MemorySpace space_;
};

}  // namespace distattn::test
