#pragma once
/// Frames over a socket that is never waited for.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backends/launch/socket.hpp"

namespace distattn::backends::launch {

enum class FrameKind : std::uint32_t {
  contribution,  ///< a rank's bytes of a collective
  result,        ///< everybody's bytes of a collective
  heartbeat,     ///< what one rank does
  table,         ///< what all ranks do, from rank 0
  failure,       ///< why the run ends
  farewell,      ///< the end of the connection is no failure
};

class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  const Socket& socket() const { return socket_; }
  bool open() const { return bool(socket_); }
  bool has_output() const { return sent_ < output_.size(); }
  void close() { socket_ = Socket(); }
  /// Nothing more will be queued: the peer reads an end after what was sent.
  void finish();
  void drop_output() { sent_ = output_.size(); }

  void queue(FrameKind kind, std::span<const std::byte> payload);
  /// Sends what can be sent now. False: the connection is broken.
  bool flush();

  /// Reads what has come, and hands out whole frames. False: the peer has closed, or sent what is no frame.
  using Receiver = std::function<void(FrameKind, std::span<const std::byte>)>;
  bool receive(const Receiver& receiver);

 private:
  bool hand_out(const Receiver& receiver);

  Socket socket_;
  std::vector<std::byte> input_, output_;
  std::size_t sent_ = 0;
};

/// A payload of plain values and byte strings, in the order of writing.
class PayloadWriter {
 public:
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(std::as_bytes(std::span(&value, 1)));
  }
  void bytes(std::span<const std::byte> bytes) {
    value<std::uint64_t>(bytes.size());
    raw(bytes);
  }
  std::span<const std::byte> done() const { return data_; }

 private:
  void raw(std::span<const std::byte> bytes) { data_.insert(data_.end(), bytes.begin(), bytes.end()); }
  std::vector<std::byte> data_;
};

/// Reads it back. Throws Error(peer) where a payload ends too early.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> data) : data_(data) {}

  template <class T>
  T value() {
    T value;
    const auto from = take(sizeof value);
    std::copy(from.begin(), from.end(), std::as_writable_bytes(std::span(&value, 1)).begin());
    return value;
  }
  std::span<const std::byte> bytes() { return take(value<std::uint64_t>()); }

 private:
  std::span<const std::byte> take(std::uint64_t count);
  std::span<const std::byte> data_;
};

}  // namespace distattn::backends::launch
