#include "distattn/serving.hpp"

#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/src/problem/cache_bands.hpp"
#include "core/src/problem/splitmix.hpp"
#include "core/src/run/pass_queue.hpp"
#include "core/src/run/process_mark.hpp"
#include "core/src/run/serving_check.hpp"
#include "core/src/run/serving_exchange.hpp"
#include "core/src/schedule/digest.hpp"
#include "distattn/cache.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// A number for the lists of requests, so that ranks can tell whether theirs is the same.
std::uint64_t digest_of(std::span<const ServedRequest> requests) {
  std::uint64_t value = 0;
  for (const ServedRequest& request : requests) {
    for (const std::int64_t number : {request.keys, request.queries, std::int64_t{request.owner}}) {
      value = splitmix::mix(value ^ static_cast<std::uint64_t>(number)) + splitmix::golden;
    }
  }
  return value;
}

/// `count` tokens of a tensor of queries from `first` on.
template <class View>
View tokens_of(View tensor, std::int64_t first, std::int64_t count) {
  if (tensor.data != nullptr) tensor.data = tensor.row(0, first, 0);
  tensor.shape[1] = count;
  return tensor;
}

}  // namespace

struct Serving::State {
  ProcessMark process;
  Problem problem;
  Dealing dealing;
  Device& device;
  Transport& transport;
  CacheReader& reader;
  ServingExchange exchange;
  CallCheck check;
  std::uint64_t digest = 0;  ///< of what the handle is for
  // Kept from call to call.
  std::vector<Band> bands;
  std::vector<std::pair<std::size_t, std::size_t>> band_ranges;
  std::vector<CacheRead> reads;
  std::vector<CacheRows> rows;
  std::vector<CacheResult> results;

  State(const Problem& given, const Dealing& dealt, Device& computing, Transport& sending)
      : problem(given),
        dealing(dealt),
        device(computing),
        transport(sending),
        reader(*computing.cache_reader()),
        exchange(problem, transport) {
    Digest all;
    all.add(problem);
    all.add(dealing.block);
    digest = all.value();
  }

  Rank rank() const { return transport.rank(); }

  /// Calls each(request, first token of the rank's tensors of queries).
  template <class Each>
  void for_each_own(const ServingCall& call, Each each) const {
    std::int64_t token = 0;
    for (std::size_t r = 0; r < call.requests.size(); ++r) {
      if (call.requests[r].owner != rank()) continue;
      each(r, token);
      token += call.requests[r].queries;
    }
  }

  void pack_queries(const ServingCall& call) {
    rows.clear();
    for_each_own(call, [&](std::size_t r, std::int64_t token) {
      rows.push_back({tokens_of(call.q, token, call.requests[r].queries), exchange.queries(r)});
    });
    reader.pack(problem, rows);
  }

  void read_cache(const ServingCall& call) {
    bands.clear();
    band_ranges.clear();
    reads.clear();
    for (const ServedRequest& request : call.requests) {
      const std::size_t first = bands.size();
      append_cache_bands(dealing, rank(), {request.keys - request.queries, request.queries, 1}, problem.mask.left,
                         bands);
      band_ranges.push_back({first, bands.size() - first});
    }
    const auto row = [](ConstTensorView cache, std::size_t sequence) {
      cache.data = cache.row(static_cast<std::int64_t>(sequence), 0, 0);
      cache.shape[0] = 1;
      return cache;
    };
    const auto width = index(call.pages_a_request);
    for (std::size_t r = 0; r < call.requests.size(); ++r) {
      const ServedRequest& request = call.requests[r];
      reads.push_back({.q = exchange.queries(r),
                       .queries = {request.keys - request.queries, request.queries, 1},
                       .k = width > 0 ? call.k : row(call.k, r),
                       .v = width > 0 ? call.v : row(call.v, r),
                       .pages = call.pages.subspan(r * width, width),
                       .keys = dealing.stored(request.keys, rank()),
                       .bands = std::span(bands).subspan(band_ranges[r].first, band_ranges[r].second),
                       .into = exchange.partial(r)});
    }
    reader.read(problem, reads);
  }

  void finish(const ServingCall& call) {
    for (Rank from = 0; from < dealing.ranks; ++from) {
      if (from != rank()) reader.merge(problem, exchange.own(), exchange.received(from));
    }
    results.clear();
    for_each_own(call, [&](std::size_t r, std::int64_t token) {
      const std::int64_t queries = call.requests[r].queries;
      results.push_back({exchange.partial(r), tokens_of(call.o, token, queries), tokens_of(call.lse, token, queries),
                         tokens_of(call.lse_low, token, queries)});
    });
    reader.unpack(problem, call.sink_logits, results);
  }
};

Serving::Serving(const Problem& problem, std::int64_t block, Device& device, Transport& transport) {
  const Dealing dealing{block, transport.size()};
  check_served(problem, dealing, device, device.cache_reader());
  if (transport.size() > 1 && !transport.reaches(MemorySpace::host)) {
    refuse(fmt::format("{} does not reach host memory (queries and results lie there): choose another transport",
                       transport.name()));
  }
  state_ = std::make_unique<State>(problem, dealing, device, transport);
}
Serving::~Serving() = default;
Serving::Serving(Serving&&) noexcept = default;
Serving& Serving::operator=(Serving&&) noexcept = default;

const Problem& Serving::problem() const { return state_->problem; }
const Dealing& Serving::dealing() const { return state_->dealing; }

void Serving::attend(const ServingCall& call) {
  State& state = *state_;
  state.process.check();
  await_passes(state.device, state.transport);
  state.check(call, state.problem, state.dealing, state.rank());
  if (call.requests.empty() && state.transport.size() == 1) return;
  try {
    state.exchange.prepare(call.requests);
    state.pack_queries(call);
    state.exchange.share_queries({digest_of(call.requests), state.digest});
    state.read_cache(call);
    state.exchange.return_partials();
    state.finish(call);
  } catch (...) {
    state.transport.abort(as_error(std::current_exception()));
    throw;
  }
}

}  // namespace distattn
