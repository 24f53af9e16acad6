#pragma once
/// The Kokkos of this process: who initialises it, who ends it, and whether it is still there.

#include <string>
#include <system_error>

#include "distattn/error.hpp"

namespace distattn::kernels::portable {

/// The version of Kokkos that this was built with.
std::string kokkos_version();

/// Why nothing can be computed with Kokkos any more, as an error says it: it has been finalized, or could not be
/// initialised, which both are for good. Else empty.
std::string why_no_kokkos();

/// Initialises Kokkos if nobody has, with the processor's cores or `threads` for its host spaces, whichever is more,
/// but at most most_openmp_threads; then it is finalized when the process exits. What the program has initialised stays
/// as it is, and is the program's to finalize. `device`: the number of the device that it then computes on, if it has
/// any. Throws Error(environment) with why_no_kokkos(). Any thread may call it.
inline constexpr int no_device = -1;
void need_kokkos(int threads, int device = no_device);

/// Threads that Kokkos's OpenMP has room for, by instance: beyond, it would write where nothing is.
inline constexpr int most_openmp_threads = 512;

/// Whether this process was forked from the one that called need_kokkos() first, where Kokkos's threads have stayed.
bool was_forked();

/// Runs call(context) on the thread that initialised Kokkos, and returns when it is done; rethrows what it throws.
/// Calls take turns. Only after need_kokkos(). Throws Error(environment) where that thread is the program's, or another
/// process's.
void on_kokkos_thread(void (*call)(void* context), void* context);

/// The error to throw where the system refuses Kokkos a thread.
Error no_threads(const std::system_error& refused);

/// Throws no_threads() where `threads` more could not run at once. OpenMP would end the program there.
void expect_room_for(int threads);

/// Calls `release` once before Kokkos is finalized, whoever does that.
void before_finalize(void (*release)());

}  // namespace distattn::kernels::portable
