#pragma once
/// What a step trains on: bytes of a text, or random tokens.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "cli/step/decoder.hpp"

namespace distattn::step {

/// A token depends on (step, position) alone: every rank reads the ones it owns and their successors, wherever those
/// live, so that no layout needs a message for its targets.
class TokenSource {
 public:
  /// Random tokens below `vocab`, from the seed.
  static TokenSource random(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed);
  /// Step k reads bytes [k·sequence, (k+1)·sequence) of the file, modulo its length. Throws Error(usage) when it cannot
  /// be read, is shorter than two tokens or longer than a GiB, or has bytes outside the vocabulary.
  static TokenSource text(const std::filesystem::path& path, std::int64_t sequence, std::int64_t vocab);

  std::int32_t token(int step, std::int64_t position) const;
  TokenBatch batch(int step, std::span<const std::int64_t> positions) const;
  /// What was read; empty for random tokens.
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  TokenSource(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed);

  std::int64_t sequence_;
  std::int64_t vocab_;
  std::uint64_t seed_;
  std::vector<std::uint8_t> bytes_;  // empty: random tokens
};

}  // namespace distattn::step
