#pragma once
/// One lane's worker: its endpoints, and the messages that are under way.

#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/ucx/context.hpp"
#include "backends/ucx/library.hpp"
#include "distattn/types.hpp"

namespace distattn::backends::ucx {

/// A message under way. Stays where it is until it is done.
struct InFlight {
  Rank peer = 0;
  bool outgoing = false;
  std::size_t bytes = 0;
  bool done = false;
  ucs_status_t status = UCS_OK;
  std::size_t received = 0;
  void* request = nullptr;
  std::vector<ucp_dt_iov_t> pieces;          ///< neighbours in memory are one
  const RegisteredMemory* memory = nullptr;  ///< where they lie
};

/// Used by one thread at a time.
class Worker {
 public:
  /// An address that other processes' workers connect to.
  using Address = std::vector<std::byte>;

  explicit Worker(const Context& context);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Address address() const;
  /// Where the workers of all ranks are; endpoints are made when a rank is first sent to.
  void set_addresses(std::vector<Address> addresses) { addresses_ = std::move(addresses); }

  void send(InFlight& message, std::uint64_t tag);
  void receive(InFlight& message, std::uint64_t tag);
  /// Hands what was sent to the network, so that it arrives without this worker's help.
  void flush(InFlight& flushing);
  /// Of a message that is done: gives its request back.
  static void release(InFlight& message);
  /// Whether anything moved.
  bool progress() { return library().worker_progress(worker_) != 0; }

  /// A rank whose endpoint has failed, and why; −1: none.
  Rank failed_peer() const { return failed_peer_; }
  ucs_status_t failure() const { return failure_; }
  /// A message that nobody has asked for, from the sender in the low bits of the tag: its tag and size.
  bool unexpected(std::uint64_t tag, std::uint64_t mask, std::uint64_t& found, std::size_t& bytes);

  /// After a failure: cancels the receives of `messages` and touches nothing any more. What is under way stays so, and
  /// the connections open, to the end of the process, which UCX 1.13 aborts if a connection is closed half made.
  void leave(std::span<const InFlight> messages);

 private:
  struct Endpoint {
    Worker* worker = nullptr;
    Rank peer = 0;
    ucp_ep_h handle = nullptr;
  };

  /// Null, and the peer has failed, where no connection can be made.
  ucp_ep_h endpoint(Rank peer);
  void lost(Rank peer, ucs_status_t status);
  void post(InFlight& message, void* request);
  void close_all();
  static void completed(InFlight& message, ucs_status_t status, std::size_t received);

  std::shared_ptr<ucp_context> context_;
  ucp_worker_h worker_ = nullptr;
  bool left_ = false;
  std::vector<Address> addresses_;
  std::map<Rank, Endpoint> endpoints_;
  std::deque<InFlight> closings_;  // kept to the end: UCX may still tell of one
  Rank failed_peer_ = -1;
  ucs_status_t failure_ = UCS_OK;
};

}  // namespace distattn::backends::ucx
