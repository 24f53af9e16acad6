#pragma once
/// Signals end the process at once, in order, and leave nothing half-written behind: the user's, a batch system's
/// warnings, limits, and faults of the program.

#include <functional>
#include <list>

#include "distattn/error.hpp"

namespace distattn::cli {

/// From now on a thread of its own, told by the signals, removes the temporary files, does what AtInterruption asked
/// for, says why and ends the process with the code of that error. A fault then ends it as it would have without us.
void watch_for_interruption();

/// Where that has begun, does not return: the process says one thing only.
void let_interruption_end();

/// Gives a launcher time to end this process, which then says nothing and ends with this code. Returns where nobody
/// does.
void give_way(int code);

/// Ends the process as an interruption does, with the code of that error, because nobody waits for this rank any more.
[[noreturn]] void end_without_launcher(const Error& gone);

/// Something more to do, with what is then said, on that thread, as long as this object lives.
class AtInterruption {
 public:
  using Action = std::function<void(const Error&)>;
  explicit AtInterruption(Action action);
  ~AtInterruption();
  AtInterruption(const AtInterruption&) = delete;
  AtInterruption& operator=(const AtInterruption&) = delete;

 private:
  std::list<Action>::iterator place_;
};

}  // namespace distattn::cli
