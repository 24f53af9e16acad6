#pragma once
/// Whether limits leave a library of others the room that it needs. Such libraries end the process where memory is
/// refused.

namespace distattn::backends {

/// Throws Error (environment) where `ulimit -v` or `-d` leaves less than libraries of that kind take: threads of their
/// own with stacks and heaps. Safe to call from any thread.
void expect_room_for(const char* library);

}  // namespace distattn::backends
