#include "simt/race_detector.hpp"

#include <string>

#include "simt/error.hpp"

namespace simt {
namespace {

constexpr std::uint32_t word_bytes = 4;
constexpr std::uint16_t several_lanes = warp_size;

[[noreturn]] void race(const char* what, const std::string& how, std::uint32_t word) {
  throw Error("race: " + std::string(what) + " " + how + ", shared byte " + std::to_string(word * word_bytes));
}

std::uint32_t words_until(std::uint32_t address, std::uint32_t bytes) {
  return (address + bytes + word_bytes - 1) / word_bytes;
}

}  // namespace

RaceDetector::RaceDetector(std::size_t shared_bytes, unsigned warps)
    : warps_(warps),
      words_(shared_bytes / word_bytes + 1),
      reads_(words_.size() * warps),
      epoch_(warps, 1),
      fenced_(std::size_t{warps} * warp_size) {}

bool RaceDetector::ordered_after_write(const Thread& thread, const Word& word) const {
  return word.write_epoch <= thread.seen.epoch[word.write_warp] ||
         (word.write_warp == thread.warp && word.write_lane == thread.lane);
}

void RaceDetector::check_readable(const Thread& thread, const Word& word, const char* what, std::uint32_t i) const {
  if (word.in_flight) race(what, "reads a word whose asynchronous copy has not been waited for", i);
  if (!ordered_after_write(thread, word)) race(what, "reads a word without being ordered after its write", i);
}

void RaceDetector::on_read(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    check_readable(thread, words_[i], what, i);
    Read& read = reads_[i * warps_ + thread.warp];
    const std::uint32_t now = epoch_[thread.warp];
    const bool another = read.epoch == now && read.lane != thread.lane;
    read.lane = another ? several_lanes : static_cast<std::uint16_t>(thread.lane);
    read.epoch = now;
  }
}

void RaceDetector::on_read_begin(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    const Word& word = words_[i];
    check_readable(thread, word, what, i);
    if (word.stored && word.write_epoch > fenced_[std::size_t{word.write_warp} * warp_size + word.write_lane]) {
      race(what, "reads a word that was stored without a proxy fence behind it", i);
    }
    ++reads_[i * warps_ + thread.warp].begun;
  }
}

void RaceDetector::on_read_end(const Thread& thread, std::uint32_t address, std::uint32_t bytes) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    Read& read = reads_[i * warps_ + thread.warp];
    --read.begun;
    read.lane = several_lanes;
    read.epoch = epoch_[thread.warp];
  }
}

void RaceDetector::fence_proxy(const Thread& thread) {
  fenced_[std::size_t{thread.warp} * warp_size + thread.lane] = epoch_[thread.warp]++;
}

void RaceDetector::write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what,
                         bool in_flight) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    Word& word = words_[i];
    if (word.in_flight) race(what, "writes a word that an asynchronous copy is writing", i);
    if (!ordered_after_write(thread, word)) race(what, "writes a word without being ordered after its last write", i);
    for (unsigned w = 0; w < warps_; ++w) {
      Read& read = reads_[i * warps_ + w];
      if (read.begun > 0) race(what, "writes a word that warp " + std::to_string(w) + " has started to read", i);
      const bool own = w == thread.warp && read.lane == thread.lane;
      if (read.epoch > thread.seen.epoch[w] && !own) {
        race(what, "writes a word without being ordered after a read by warp " + std::to_string(w), i);
      }
      read = {};
    }
    word = {epoch_[thread.warp], static_cast<std::uint8_t>(thread.warp), static_cast<std::uint8_t>(thread.lane),
            in_flight, !in_flight};
  }
}

void RaceDetector::on_write(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  write(thread, address, bytes, what, false);
}

void RaceDetector::on_copy(const Thread& thread, std::uint32_t address, std::uint32_t bytes, const char* what) {
  write(thread, address, bytes, what, true);
}

void RaceDetector::on_landed(unsigned writer, std::uint32_t epoch, std::uint32_t address, std::uint32_t bytes) {
  for (std::uint32_t i = address / word_bytes; i < words_until(address, bytes); ++i) {
    words_[i] = {epoch, static_cast<std::uint8_t>(writer), 0, false, false};
  }
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
