#include "cli/step/tokens.hpp"

#include <algorithm>
#include <string>

#include "cli/step/random.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "kernels/dense/cross_entropy.hpp"

namespace distattn::step {
namespace {

// Streams below this one belong to parameters.
constexpr std::uint64_t token_stream = std::uint64_t{1} << 32;

constexpr std::size_t most_bytes = std::size_t{1} << 30;

}  // namespace

TokenSource::TokenSource(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed)
    : sequence_(sequence), vocab_(vocab), seed_(seed) {
  if (sequence < 2) {
    refuse("seq is " + std::to_string(sequence) + " (the loss needs a token and its successor): choose at least 2");
  }
}

TokenSource TokenSource::random(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed) {
  return {sequence, vocab, seed};
}

TokenSource TokenSource::text(const std::filesystem::path& path, std::int64_t sequence, std::int64_t vocab) {
  TokenSource source(sequence, vocab, 0);
  const std::string name = "text " + path.string();
  const std::string bytes = read_file_or_pipe(path, most_bytes);
  source.bytes_.assign(bytes.begin(), bytes.end());
  if (source.bytes_.size() < 2) {
    refuse(name + " has " + std::to_string(source.bytes_.size()) +
           " bytes (the loss needs a token and its successor): give a longer one");
  }
  const int largest = *std::max_element(source.bytes_.begin(), source.bytes_.end());
  if (largest >= vocab) {
    refuse(name + " has byte " + std::to_string(largest) + " (the vocabulary ends at " + std::to_string(vocab - 1) +
           "): use --vocab 256");
  }
  return source;
}

std::int32_t TokenSource::token(int step, std::int64_t position) const {
  const auto index = static_cast<std::uint64_t>(step * sequence_ + position);
  if (!bytes_.empty()) return bytes_[index % bytes_.size()];
  return static_cast<std::int32_t>(random_bits(seed_, token_stream, index) % static_cast<std::uint64_t>(vocab_));
}

TokenBatch TokenSource::batch(int step, std::span<const std::int64_t> positions) const {
  TokenBatch batch;
  for (const std::int64_t position : positions) {
    const bool last = position + 1 == sequence_;
    batch.tokens.push_back(token(step, position));
    batch.targets.push_back(last ? kernels::dense::no_target : token(step, position + 1));
  }
  return batch;
}

}  // namespace distattn::step
