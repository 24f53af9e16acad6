#pragma once
/// Waiting for what other threads are about to do.

namespace distattn::kernels {

/// Tells the core that this thread only waits. The thread keeps its core: on a machine that runs other programs too,
/// yielding would give those a whole slice of time.
inline void rest_in_poll() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks for about a tenth of a millisecond whether done(). Returns whether it was.
template <class Done>
bool poll(Done done) {
  constexpr int polls = 2000;
  for (int i = 0; i < polls; ++i) {
    if (done()) return true;
    rest_in_poll();
  }
  return false;
}

}  // namespace distattn::kernels
