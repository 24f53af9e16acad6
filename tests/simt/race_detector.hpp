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
  /// An asynchronous copy starts to write; until on_waited() nobody may touch its target.
  void on_copy(const Thread& thread, std::uint32_t address, std::uint32_t bytes);
  void on_waited(const Thread& thread, std::uint32_t address, std::uint32_t bytes);

  /// What `thread` has done so far becomes visible to whoever joins `into`.
  void release(Thread& thread, Clock& into);
  /// `lanes`, all of one warp, are ordered with each other from here on.
  void synchronise_lanes(std::vector<Thread*>& lanes);

 private:
  struct Word {
    std::uint32_t write_epoch = 0;
    std::uint8_t write_warp = 0, write_lane = 0;
    bool in_flight = false;
  };
  struct Read {
    std::uint32_t epoch = 0;
    std::uint32_t lane = 0;
  };

  void write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what, bool in_flight);
  bool ordered_after_write(const Thread& thread, const Word& word) const;

  std::size_t warps_;
  std::vector<Word> words_;
  std::vector<Read> reads_;           // [word][warp]
  std::vector<std::uint32_t> epoch_;  // of each warp
};

}  // namespace simt
