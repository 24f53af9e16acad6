#pragma once
/// What the two sides of a new connection tell each other, byte for byte; both are of one build of distattn.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "backends/launch/sha256.hpp"

namespace distattn::backends::launch {

using Nonce = std::array<std::byte, 16>;

/// From who connects.
struct Hello {
  std::array<char, 8> magic{'d', 'i', 's', 't', 'a', 't', 't', 'n'};
  std::uint32_t protocol = 2, unused = 0;
  Nonce nonce{};
};
/// Rank 0 answers, and proves that it knows the token.
struct Challenge {
  Nonce nonce{};
  Digest proof{};
};
/// Who connects does likewise, and says who it is.
struct Claim {
  std::uint32_t rank = 0, size = 0;
  std::uint32_t insists = 0;  ///< 1: it has found no rank 0 with its own command
  Digest command{};
  Digest proof{};
};
enum class Verdict : std::uint32_t { accepted, no_such_rank, rank_taken, other_command };
struct Answer {
  Verdict verdict = Verdict::accepted;
  std::uint32_t size = 0;  ///< ranks that rank 0 waits for
};

/// What tells a run from others that it may meet.
struct RunKey {
  RunKey(std::string secret = {}, const Digest& text = {}) : token(std::move(secret)), command(text) {}

  std::string token;  ///< what nobody else knows
  /// What its ranks were told to do: of several runs that know one token, ranks choose that of their own command. A
  /// rank whose command differs from all of them is taken too, late.
  Digest command;
};

/// From the system's random numbers.
Nonce draw_nonce();
/// 32 of them, as text.
std::string draw_token();

Digest server_proof(const std::string& token, const Hello& hello, const Nonce& server);
Digest client_proof(const std::string& token, const Hello& hello, const Nonce& server, const Claim& claim);

}  // namespace distattn::backends::launch
