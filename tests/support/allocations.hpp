#pragma once
/// Counts what operator new hands out, on all threads. Include it in one file of a test program.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace distattn::test {

inline std::atomic<std::size_t> allocations{0};

inline void* counted(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
inline void* counted_or_throw(std::size_t bytes) {
  if (void* memory = counted(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace distattn::test

// g++ sees a free() of memory from new, and cannot see that new is malloc() here.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

// clang's thread sanitizer keeps the operators for itself: nothing is counted there.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DISTATTN_OPERATORS_TAKEN
#endif
#endif

#ifndef DISTATTN_OPERATORS_TAKEN
// All forms but the over-aligned: sanitizers bring their own for each that is missing, and do not mix.
void* operator new(std::size_t bytes) { return distattn::test::counted_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return distattn::test::counted_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return distattn::test::counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return distattn::test::counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif
