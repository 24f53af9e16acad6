#include "simt/race_detector.hpp"

#include <string>

#include "simt/error.hpp"

namespace simt {
namespace {

constexpr std::uint32_t word_bytes = 4;
constexpr std::uint32_t several_lanes = warp_size;

[[noreturn]] void race(const char* what, const std::string& how, std::uint32_t word) {
  throw Error("race: " + std::string(what) + " " + how + ", shared byte " + std::to_string(word * word_bytes));
}

std::uint32_t words_until(std::uint32_t address, std::uint32_t bytes) {
  return (address + bytes + word_bytes - 1) / word_bytes;
}

}  // namespace

RaceDetector::RaceDetector(std::size_t shared_bytes, unsigned warps)
    : warps_(warps), words_(shared_bytes / word_bytes + 1), reads_(words_.size() * warps), epoch_(warps, 1) {}

bool RaceDetector::ordered_after_write(const Thread& thread, const Word& word) const {
  return word.write_epoch <= thread.seen.epoch[word.write_warp] ||
         (word.write_warp == thread.warp && word.write_lane == thread.lane);
}

void RaceDetector::on_read(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    if (words_[i].in_flight) race(what, "reads a word whose asynchronous copy has not been waited for", i);
    if (!ordered_after_write(thread, words_[i])) race(what, "reads a word without being ordered after its write", i);
    Read& read = reads_[i * warps_ + thread.warp];
    const std::uint32_t now = epoch_[thread.warp];
    read.lane = read.epoch == now && read.lane != thread.lane ? several_lanes : thread.lane;
    read.epoch = now;
  }
}

void RaceDetector::write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what,
                         bool in_flight) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    Word& word = words_[i];
    if (word.in_flight) race(what, "writes a word that an asynchronous copy is writing", i);
    if (!ordered_after_write(thread, word)) race(what, "writes a word without being ordered after its last write", i);
    for (unsigned w = 0; w < warps_; ++w) {
      Read& read = reads_[i * warps_ + w];
      const bool own = w == thread.warp && read.lane == thread.lane;
      if (read.epoch > thread.seen.epoch[w] && !own) {
        race(what, "writes a word without being ordered after a read by warp " + std::to_string(w), i);
      }
      read = {};
    }
    word = {epoch_[thread.warp], static_cast<std::uint8_t>(thread.warp), static_cast<std::uint8_t>(thread.lane),
            in_flight};
  }
}

void RaceDetector::on_write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  write(thread, address, bytes, what, false);
}

void RaceDetector::on_copy(const Thread& thread, std::uint32_t address, std::uint32_t bytes) {
  write(thread, address, bytes, "cp.async", true);
}

void RaceDetector::on_waited(const Thread& thread, std::uint32_t address, std::uint32_t bytes) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    words_[i].write_epoch = epoch_[thread.warp];
    words_[i].in_flight = false;
  }
}

void RaceDetector::release(Thread& thread, Clock& into) {
  into.join(thread.seen);
  std::uint32_t& epoch = epoch_[thread.warp];
  into.epoch[thread.warp] = std::max(into.epoch[thread.warp], epoch++);
}

void RaceDetector::synchronise_lanes(std::vector<Thread*>& lanes) {
  Clock together;
  for (const Thread* lane : lanes) together.join(lane->seen);
  const unsigned warp = lanes.front()->warp;
  together.epoch[warp] = epoch_[warp]++;
  for (Thread* lane : lanes) lane->seen = together;
}

}  // namespace simt
