#include "core/src/run/serving_check.hpp"

#include <array>
#include <cmath>

#include <fmt/core.h>

#include "core/src/run/tensor_check.hpp"
#include "distattn/cache.hpp"
#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

using Shape = std::array<std::int64_t, 4>;

constexpr std::int64_t least_page = 16, most_page = 4096;

std::string shape_text(const Shape& shape) {
  return fmt::format("{}x{}x{}x{}", shape[0], shape[1], shape[2], shape[3]);
}

void check_mask(const Mask& mask) {
  if (mask.causal && !mask.explicit_bands && mask.documents.empty() && mask.sinks == 0 && mask.right < 0) return;
  refuse(
      "a mask that is not causal (a request's queries see their own tokens and those before them): serve with a "
      "causal mask, maybe with a window to the left");
}

void check_strides(const char* name, const ConstTensorView& tensor, bool is_result) {
  const std::string why = why_not_strides(tensor, is_result);
  if (!why.empty()) refuse(fmt::format("{} {}", name, why));
}

/// A tensor of the call that this rank needs; a result if it is `written`.
void check_tensor(const char* name, const ConstTensorView& tensor, const Shape& shape, bool written) {
  if (tensor.data == nullptr && shape[1] == 0) return;
  if (tensor.data == nullptr) refuse(fmt::format("no {} (the call needs one of {}): bind it", name, shape_text(shape)));
  if (tensor.shape != shape) {
    refuse(fmt::format("{} is {} (the rank's requests make it {}: 1 x queries x heads x dim): bind their rows", name,
                       shape_text(tensor.shape), shape_text(shape)));
  }
  if (tensor.space != MemorySpace::host) {
    refuse(fmt::format("{} lies on a GPU (caches are read on hosts): copy it", name));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype) != 0) {
    refuse(fmt::format("{} begins between two of its {} elements: align it", name, name_of(tensor.dtype)));
  }
  check_strides(name, tensor, written);
}

/// k or v, which are read where they lie.
void check_cache(const char* name, const ConstTensorView& cache, const Problem& problem, int dim) {
  const bool empty = cache.batch() == 0 || cache.sequence() == 0;  // of a rank that stores nothing yet
  if (cache.data == nullptr && !empty) refuse(fmt::format("no {} (requests read a cache): bind it", name));
  if (cache.space != MemorySpace::host) {
    refuse(fmt::format("{} lies on a GPU (caches are read on hosts): copy it", name));
  }
  if (cache.dtype != problem.dtype) {
    refuse(fmt::format("{} is {} (the problem is {}, and a cache is read where it lies): store it in that type", name,
                       name_of(cache.dtype), name_of(problem.dtype)));
  }
  if (cache.heads() != problem.kv_heads || cache.head_dim() != dim) {
    refuse(fmt::format("{} has {} heads of {} (the problem has {} of {}): bind the cache of this layer", name,
                       cache.heads(), cache.head_dim(), problem.kv_heads, dim));
  }
  if (empty) return;
  check_strides(name, cache, false);
  if (cache.strides[3] != 1) {
    refuse(fmt::format("{} has stride {} along its rows (elements of a row are neighbours): store it so", name,
                       cache.strides[3]));
  }
  if (reinterpret_cast<std::uintptr_t>(cache.data) % size_of(cache.dtype) != 0) {
    refuse(fmt::format("{} begins between two of its {} elements: align it", name, name_of(cache.dtype)));
  }
}

void check_caches(const ServingCall& call, const Problem& problem) {
  check_cache("k", call.k, problem, problem.head_dim);
  check_cache("v", call.v, problem, problem.value_dim);
  const auto requests = std::ssize(call.requests);
  if (call.k.batch() != call.v.batch() || call.k.sequence() != call.v.sequence()) {
    refuse(fmt::format("k is {} and v is {} (they hold the same tokens): bind both of one cache",
                       shape_text(call.k.shape), shape_text(call.v.shape)));
  }
  if (call.pages_a_request == 0) {
    if (!call.pages.empty()) refuse("pages without pages_a_request (the width of the table): give it");
    if (call.k.batch() == requests) return;
    refuse(fmt::format("a cache of {} sequences for {} requests (without pages each has one): bind those of the call",
                       call.k.batch(), requests));
  }
  if (call.pages_a_request < 0) refuse(fmt::format("{} pages a request (a number): give it", call.pages_a_request));
  const std::int64_t tokens = call.k.sequence();
  if (tokens < least_page || tokens > most_page || tokens % least_page != 0) {
    refuse(fmt::format("a cache in pages of {} tokens (a page has {} to {}, a multiple of {}): use others", tokens,
                       least_page, most_page, least_page));
  }
  if (std::ssize(call.pages) != requests * call.pages_a_request) {
    refuse(fmt::format("a table of {} pages for {} requests of {} each: give a row for each request", call.pages.size(),
                       requests, call.pages_a_request));
  }
}

void check_request(const ServedRequest& request, std::size_t number, const Problem& problem, int ranks) {
  if (request.queries < 1 || request.queries > problem.seq_q) {
    refuse(fmt::format("request {} has {} queries (from 1 to the {} that the handle is for): give fewer at a time",
                       number, request.queries, problem.seq_q));
  }
  if (request.keys < request.queries || request.keys > problem.seq_kv) {
    refuse(
        fmt::format("request {} has {} keys (its {} queries are the last of them, and a sequence has at most {}): "
                    "give its length",
                    number, request.keys, request.queries, problem.seq_kv));
  }
  if (request.owner < 0 || request.owner >= ranks) {
    refuse(
        fmt::format("request {} is owned by rank {} (there are {}): name one of them", number, request.owner, ranks));
  }
}

void check_sinks_of(const ServingCall& call, const Problem& problem) {
  if (!problem.scores.sink_logits) {
    if (call.sink_logits.data != nullptr) refuse("sink_logits (the problem has none): leave it out");
    return;
  }
  check_tensor("sink_logits", call.sink_logits, {1, 1, problem.heads, 1}, false);
  for (int head = 0; head < problem.heads; ++head) {
    double value = 0;
    convert(call.sink_logits.row(0, 0, head), call.sink_logits.dtype, reinterpret_cast<std::byte*>(&value), DType::fp64,
            1);
    if (std::isfinite(value)) continue;
    refuse(fmt::format("sink_logits has {} for head {} (a logit is a finite number): bind numbers", value, head));
  }
}

}  // namespace

void check_served(const Problem& problem, const Dealing& dealing, const Device& device, const CacheReader* reader) {
  check(problem);
  check_mask(problem.mask);
  if (problem.batch != 1) refuse(fmt::format("batch {} (each request is a sequence): serve with 1", problem.batch));
  if (problem.scores.dropout != 0) refuse("dropout (requests are not trained on): serve without");
  if (problem.shared_kv) {
    refuse("shared_kv (keys and values are two caches): serve without, with v a view of the first numbers of k's rows");
  }
  if (problem.scores.max_logit) refuse("max_logit (a quantity of training): serve without");
  if (problem.wire_type() != problem.accumulator()) {
    refuse(fmt::format("a wire in {} (partial results of serving travel in {}): choose that", name_of(problem.wire),
                       name_of(problem.accumulator())));
  }
  if (dealing.block < 1) refuse(fmt::format("blocks of {} tokens (a rank stores some): give 1 or more", dealing.block));
  if (!problem.alibi_slopes.empty() && dealing.ranks > 1) {
    refuse("alibi over ranks (kernels know positions of keys that one rank stores): serve on one rank");
  }
  const std::string why = device.why_not(problem, Pass::forward);
  if (!why.empty()) {
    refuse(fmt::format("{} serves no such problem ({}): choose another backend or element type", device.name(), why));
  }
  if (reader == nullptr) {
    refuse(fmt::format("{} reads no caches (kernels of hosts do): choose cpu or reference", device.name()));
  }
}

void CallCheck::operator()(const ServingCall& call, const Problem& problem, const Dealing& dealing, Rank rank) {
  if (call.requests.empty()) return;
  for (std::size_t r = 0; r < call.requests.size(); ++r) check_request(call.requests[r], r, problem, dealing.ranks);
  check_caches(call, problem);
  std::int64_t queries = 0;
  if (call.pages_a_request > 0) seen_.resize(index(call.k.batch()), -1);
  for (std::size_t r = 0; r < call.requests.size(); ++r) {
    const ServedRequest& request = call.requests[r];
    if (request.owner == rank) queries += request.queries;
    const std::int64_t stored = dealing.stored(request.keys, rank);
    if (call.pages_a_request > 0) {
      check_pages(call, r, ceil_div(stored, call.k.sequence()));
    } else if (stored > call.k.sequence()) {
      refuse(
          fmt::format("request {} has {} keys on this rank (its cache has room for {}): give its length, or a longer "
                      "cache",
                      r, stored, call.k.sequence()));
    }
  }
  if (problem.accumulator() == DType::fp64 && call.lse_low.data != nullptr) {
    refuse("lse_low (an LSE in fp64 has no low part): leave it out");
  }
  if (call.lse.data != nullptr && size_of(call.lse.dtype) < size_of(DType::fp32)) {
    refuse(fmt::format("lse is {} (it would be rounded): give one in fp32", name_of(call.lse.dtype)));
  }
  const Shape rows{1, queries, problem.heads, problem.value_dim}, statistics{1, queries, problem.heads, 1};
  check_tensor("q", call.q, {1, queries, problem.heads, problem.head_dim}, false);
  check_tensor("o", call.o, rows, true);
  if (call.lse.data != nullptr) check_tensor("lse", call.lse, statistics, true);
  if (call.lse_low.data != nullptr) check_tensor("lse_low", call.lse_low, statistics, true);
  const std::string why = why_not_apart({{"o", call.o}, {"lse", call.lse}, {"lse_low", call.lse_low}});
  if (!why.empty()) refuse(why);
  check_sinks_of(call, problem);
}

void CallCheck::check_pages(const ServingCall& call, std::size_t request, std::int64_t needed) {
  if (needed > call.pages_a_request) {
    refuse(fmt::format("request {} needs {} pages (its table has {}): give a longer table", request, needed,
                       call.pages_a_request));
  }
  const std::int64_t number = count_++;
  const auto first = index(static_cast<std::int64_t>(request) * call.pages_a_request);
  for (std::size_t i = 0; i < index(needed); ++i) {
    const std::int32_t page = call.pages[first + i];
    if (page < 0 || page >= call.k.batch()) {
      refuse(fmt::format("request {} has page {} (the cache has pages 0 to {}): name one of them", request, page,
                         call.k.batch() - 1));
    }
    std::int64_t& seen = seen_[index(page)];
    if (seen == number) {
      refuse(
          fmt::format("request {} has page {} twice (each holds tokens of its own): give it another", request, page));
    }
    seen = number;
  }
}

}  // namespace distattn
