#include "backends/launch/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "distattn/error.hpp"

namespace distattn::backends::launch {
namespace {

struct Header {
  std::uint64_t bytes = 0;
  FrameKind kind{};
  std::uint32_t unused = 0;
};

constexpr std::uint64_t longest_frame = std::uint64_t{1} << 36;
constexpr std::size_t read_at_once = 1 << 18;

}  // namespace

void Connection::queue(FrameKind kind, std::span<const std::byte> payload) {
  if (!open()) return;
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent_));
  sent_ = 0;
  const Header header{payload.size(), kind, 0};
  const auto bytes = std::as_bytes(std::span(&header, 1));
  output_.insert(output_.end(), bytes.begin(), bytes.end());
  output_.insert(output_.end(), payload.begin(), payload.end());
}

bool Connection::flush() {
  while (open() && has_output()) {
    const auto sent = send_some(socket_, std::span(output_).subspan(sent_));
    if (!sent) return false;
    if (*sent == 0) return true;
    sent_ += *sent;
  }
  output_.clear();
  sent_ = 0;
  return true;
}

void Connection::finish() { ::shutdown(socket_.fd(), SHUT_WR); }

bool Connection::receive(const Receiver& receiver) {
  while (true) {
    const std::size_t had = input_.size();
    input_.resize(had + read_at_once);
    const auto got = receive_some(socket_, std::span(input_).subspan(had));
    input_.resize(had + got.value_or(0));
    if (!hand_out(receiver) || !got) return false;
    if (*got < read_at_once) return true;
  }
}

bool Connection::hand_out(const Receiver& receiver) {
  std::size_t at = 0;
  while (input_.size() - at >= sizeof(Header)) {
    Header header;
    std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(at), sizeof header,
                std::as_writable_bytes(std::span(&header, 1)).begin());
    if (header.bytes > longest_frame || header.kind > FrameKind::farewell) return false;
    if (input_.size() - at - sizeof header < header.bytes) break;
    receiver(header.kind, std::span(input_).subspan(at + sizeof header, header.bytes));
    at += sizeof header + header.bytes;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

std::span<const std::byte> PayloadReader::take(std::uint64_t count) {
  if (count > data_.size())
    throw Error(ErrorKind::peer, "a control message ends too early (ranks run different builds)");
  const auto taken = data_.first(count);
  data_ = data_.subspan(count);
  return taken;
}

}  // namespace distattn::backends::launch
