#pragma once
/// Denormal arithmetic takes a hundred cycles on some processors and tells nothing here: exp() underflows.

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace distattn::kernels {

/// Flushes denormal operands and results to zero in this thread while it lives.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(read()) { write(saved_ | flush_bits); }
  ~FlushDenormals() { write(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  static constexpr std::uint64_t flush_bits = 0x8040;  // FTZ, DAZ
  static std::uint64_t read() { return _mm_getcsr(); }
  static void write(std::uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t flush_bits = std::uint64_t{1} << 24;  // FZ
  static std::uint64_t read() {
    std::uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(std::uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
  static constexpr std::uint64_t flush_bits = 0;
  static std::uint64_t read() { return 0; }
  static void write(std::uint64_t) {}
#endif

  std::uint64_t saved_;
};

}  // namespace distattn::kernels
