#include "backends/launch/handshake.hpp"

#include <sys/random.h>

#include <vector>

#include <fmt/core.h>

#include "distattn/error.hpp"

namespace distattn::backends::launch {
namespace {

template <class Bytes>
void append(std::vector<std::byte>& to, const Bytes& bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  to.insert(to.end(), view.begin(), view.end());
}

void draw(std::span<std::byte> into) {
  if (::getrandom(into.data(), into.size(), 0) != static_cast<ssize_t>(into.size())) {
    throw Error(ErrorKind::environment, "the system gives no random numbers (getrandom failed): set DISTATTN_TOKEN");
  }
}

}  // namespace

Nonce draw_nonce() {
  Nonce nonce;
  draw(nonce);
  return nonce;
}

std::string draw_token() {
  std::array<std::byte, 32> bytes;
  draw(bytes);
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Digest server_proof(const std::string& token, const Hello& hello, const Nonce& server) {
  std::vector<std::byte> message;
  append(message, std::string_view("rank 0"));
  append(message, hello.nonce);
  append(message, server);
  return hmac_sha256(token, message);
}

Digest client_proof(const std::string& token, const Hello& hello, const Nonce& server, const Claim& claim) {
  std::vector<std::byte> message;
  append(message, std::string_view("a rank"));
  append(message, hello.nonce);
  append(message, server);
  append(message, std::array{claim.rank, claim.size, claim.insists});
  append(message, claim.command);
  return hmac_sha256(token, message);
}

}  // namespace distattn::backends::launch
