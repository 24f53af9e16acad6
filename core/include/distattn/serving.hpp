#pragma once
/// Attention of many requests at once to caches of keys and values that grow.

#include <cstdint>
#include <memory>
#include <span>

#include "distattn/dealing.hpp"
#include "distattn/engine.hpp"
#include "distattn/problem.hpp"
#include "distattn/tensor.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One request of a call: the sequence has `keys` tokens, and its last `queries` ask. `owner` has their q and gets o.
struct ServedRequest {
  std::int64_t keys = 1, queries = 1;
  Rank owner = 0;
  friend bool operator==(const ServedRequest&, const ServedRequest&) = default;
};

/// The requests of one call, the same list on all ranks, and one rank's tensors.
///
/// Tensors of queries, [1, queries, heads, dim], have those of the requests that the rank owns, one request after the
/// other. They may have any type and any strides; lse is fp32 or fp64; lse and lse_low may be left out.
///
/// The cache, k and v, has the problem's type and is read where it lies. It holds the tokens that the rank stores
/// (Dealing), the last ones included:
///   with pages: [pages, tokens of a page, kv_heads, dim]. Request r has `pages_a_request` entries of `pages` from
///     r · pages_a_request on: its token j lies in row j mod tokens of page pages[r · pages_a_request + j / tokens]. A
///     page has 16 to 4096 tokens, a multiple of 16. Requests may share pages, as those with a common beginning do.
///     Entries behind the last one that a request needs are not read.
///   without: [requests, tokens, kv_heads, dim].
struct ServingCall {
  std::span<const ServedRequest> requests{};
  ConstTensorView q{}, k{}, v{};
  std::span<const std::int32_t> pages{};
  std::int64_t pages_a_request = 0;
  TensorView o{}, lse{}, lse_low{};
  ConstTensorView sink_logits{};  ///< as in Bindings
};

/// One rank's handle. Lengths and numbers of queries may be others in every call: nothing is planned, and memory is
/// allocated only when a call has more rows than all before it.
///
/// Over ranks every rank gets all queries, attends to the tokens that it stores, and sends partial results to the
/// owner, which merges them: neither keys nor values travel. Results do not depend on the number of threads, bit for
/// bit.
///
/// Construction concerns one rank; calls are collectives over the transport's ranks, and threads and failures as those
/// of Attention. Device and transport must outlive the handle.
class Serving {
 public:
  /// `problem` says what all requests have in common: heads, dimensions, type, scores, and, as seq_kv and seq_q, the
  /// longest sequence and the most queries of a request. Its mask is causal, maybe with a window (Mask::left). `block`:
  /// Dealing. Throws Error(usage) for any other problem, and if the device does not read caches.
  Serving(const Problem& problem, std::int64_t block, Device& device, Transport& transport);
  ~Serving();
  Serving(Serving&&) noexcept;
  Serving& operator=(Serving&&) noexcept;

  const Problem& problem() const;
  const Dealing& dealing() const;

  /// Computes o of the rank's queries. Throws Error(usage), before anything is read or sent, naming the request, if one
  /// has more keys than a sequence or its cache, a page that does not exist or that it has twice, or too few pages.
  void attend(const ServingCall& call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop
