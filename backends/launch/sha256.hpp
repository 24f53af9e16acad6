#pragma once
/// SHA-256 (FIPS 180-4) and HMAC (RFC 2104): how two processes prove to each other that they know the same token.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace distattn::backends::launch {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> message);
Digest hmac_sha256(std::string_view key, std::span<const std::byte> message);
/// In a time that does not tell where they differ.
bool same(const Digest& a, const Digest& b);

}  // namespace distattn::backends::launch
