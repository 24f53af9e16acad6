#pragma once
/// A function on a stack of its own that can pause: one emulated CUDA thread.

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

/// Used by one operating system thread at a time, a body by one. Pausing costs a few nanoseconds on x86-64.
class Fiber {
 public:
  using Body = void (*)(void* argument);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next resume() calls `body`, which must not throw. What ran here before is forgotten without unwinding.
  void restart(Body body, void* argument);
  /// Runs the fibre until it pauses or ends. From outside of it.
  void resume();
  /// Returns to who resumed it. From inside.
  void pause();

 private:
  static void enter();

  enum class State { in_body, between_bodies, closing };  // in_body: or never resumed

  char* stack_;
  void* fake_stack_ = nullptr;  // AddressSanitizer's, which is dear to make: kept from body to body
  State state_ = State::in_body;
  Body body_ = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace simt
