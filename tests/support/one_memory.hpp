#pragma once
/// A transport that reaches one memory alone, such as the host's: for what devices with memory of their own do about
/// it.

#include "distattn/engine.hpp"

namespace distattn::test {

class OneMemory : public Transport {
 public:
  /// `over` must outlive it.
  explicit OneMemory(Transport& over, MemorySpace space = MemorySpace::host) : over_(over), space_(space) {}

  std::string_view name() const override { return "one memory"; }
  Rank rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  bool reaches(MemorySpace space) const override { return space == space_; }
  void prepare(BufferTable& buffers) override { over_.prepare(buffers); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    DISTATTN_EXPECT(buffers.space() == space_);
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
  const MemorySpace space_;
};

}  // namespace distattn::test
