#pragma once
/// Happens-before over the words of one block's shared memory.

#include <cstdint>
#include <vector>

#include "simt/thread.hpp"

namespace simt {

/// Knowledge is kept per thread, releases per warp: no false alarms, and a few misses among the lanes of one warp.
/// Every method throws Error on a race. Addresses count bytes from the start of shared memory.
class RaceDetector {
 public:
  RaceDetector(std::size_t shared_bytes, unsigned warps);

  void on_read(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what);
  void on_write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what);
  /// An asynchronous copy starts to write; until on_waited() or on_landed() nobody may touch its target.
  void on_copy(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what = "cp.async");
  void on_waited(const Thread& thread, std::uint32_t address, std::uint32_t bytes);
  /// From now on the target counts as written by `writer` (max_warps and above) in its epoch.
  void on_landed(unsigned writer, std::uint32_t epoch, std::uint32_t address, std::uint32_t bytes);

  /// A unit beside the threads starts to read for `thread`; until the end nobody may write. What threads wrote there
  /// must have been followed by their proxy fence.
  void on_read_begin(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what);
  void on_read_end(const Thread& thread, std::uint32_t address, std::uint32_t bytes);
  void fence_proxy(const Thread& thread);

  /// What `thread` has done so far becomes visible to whoever joins `into`.
  void release(Thread& thread, Clock& into);
  /// `lanes`, all of one warp, are ordered with each other from here on.
  void synchronise_lanes(std::vector<Thread*>& lanes);

 private:
  struct Word {
    std::uint32_t write_epoch = 0;
    std::uint8_t write_warp = 0, write_lane = 0;
    bool in_flight = false;
    bool stored = false;  // by a thread, not by a copy
  };
  struct Read {
    std::uint32_t epoch = 0;
    std::uint16_t lane = 0;
    std::uint16_t begun = 0;  // reads by units beside the threads that have not ended
  };

  void write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what, bool in_flight);
  void check_readable(const Thread& thread, const Word& word, const char* what, std::uint32_t i) const;
  bool ordered_after_write(const Thread& thread, const Word& word) const;

  std::size_t warps_;
  std::vector<Word> words_;
  std::vector<Read> reads_;            // [word][warp]
  std::vector<std::uint32_t> epoch_;   // of each warp
  std::vector<std::uint32_t> fenced_;  // [warp · 32 + lane]: epoch of the last proxy fence
};

}  // namespace simt
