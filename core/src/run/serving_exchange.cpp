#include "core/src/run/serving_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/core.h>

#include "core/src/schedule/aligned.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr std::size_t word = sizeof(float), header = buffer_alignment;

std::size_t whole_words(std::size_t bytes) { return (bytes + word - 1) / word * word; }

}  // namespace

/// Parts: queries by owner, partial results by owner, partial results of this rank's rows by who made them.
struct ServingExchange::Table {
  Outline outline;
  RankProgram program;
  std::unique_ptr<BufferTable> buffers;
};

std::size_t ServingExchange::partial_bytes(std::int64_t rows) const {
  const auto count = index(rows), real = size_of(problem_.accumulator());
  const std::size_t low = problem_.has_low_lse() ? aligned(count * sizeof(std::uint16_t)) : 0;
  return aligned(count * index(problem_.value_dim) * real) + aligned(count * real) + low;
}

std::size_t ServingExchange::query_offset(std::size_t request) const {
  return header + index(first_[request] * problem_.head_dim) * size_of(problem_.dtype);
}

std::byte* ServingExchange::at(std::size_t part, std::size_t offset) {
  return table_->buffers->parts(BufferId{static_cast<int>(part)})[0].data + offset;
}

/// `count` of a part's rows from `first` on; -1: all.
CachePartial ServingExchange::rows_of(std::size_t part, std::int64_t all, std::int64_t first, std::int64_t count) {
  const std::size_t real = size_of(problem_.accumulator()), dim = index(problem_.value_dim);
  const auto whole = index(all), row = index(first);
  std::byte* const o = at(part, 0);
  std::byte* const lse = o + aligned(whole * dim * real);
  auto* const low = reinterpret_cast<std::uint16_t*>(lse + aligned(whole * real));
  return {count < 0 ? all : count, o + row * dim * real, lse + row * real,
          problem_.has_low_lse() ? low + row : nullptr};
}

CachePartial ServingExchange::partial(std::size_t request) {
  const Rank owner = owners_[request];
  return rows_of(partial_part(owner), rows_[index_of(owner)], first_[request], queries_[request] * problem_.heads);
}

void ServingExchange::prepare(std::span<const ServedRequest> requests) {
  const auto same = [&](const ServedRequest& request) {
    const auto r = index(&request - requests.data());
    return owners_[r] == request.owner && queries_[r] == request.queries;
  };
  if (table_ != nullptr && requests.size() == owners_.size() && std::all_of(requests.begin(), requests.end(), same)) {
    return;
  }
  owners_.clear();
  queries_.clear();
  first_.clear();
  rows_.assign(index_of(ranks()), 0);
  for (const ServedRequest& request : requests) {
    std::int64_t& rows = rows_[index_of(request.owner)];
    owners_.push_back(request.owner);
    queries_.push_back(request.queries);
    first_.push_back(rows);
    rows += request.queries * problem_.heads;
  }
  auto table = std::make_shared<Table>();
  RankProgram& program = table->program;
  Sharding& sharding = table->outline.sharding;
  table->outline.name = "serving";
  sharding.ranks = ranks();
  sharding.problem.head_dim = sharding.problem.value_dim = 1;
  sharding.groups = {{0, 1, 0, 1}};
  const auto add = [&](std::size_t bytes, Rank owner) {  // each part is a buffer of words
    const auto words = static_cast<std::int64_t>(whole_words(bytes) / word);
    const auto number = static_cast<int>(program.buffers.size());
    sharding.queries.push_back({{0, words, 1}, owner});
    program.buffers.push_back({Value{ValueKind::query, 0, SegmentId{number}}, DType::fp32, whole_words(bytes), number});
    program.slots.push_back(whole_words(bytes));
  };
  const auto query_bytes = [&](Rank owner) {
    return header + index(rows_[index_of(owner)] * problem_.head_dim) * size_of(problem_.dtype);
  };
  for (Rank owner = 0; owner < ranks(); ++owner) add(query_bytes(owner), owner);
  for (Rank owner = 0; owner < ranks(); ++owner) add(partial_bytes(rows_[index_of(owner)]), owner);
  for (Rank from = 0; from < ranks(); ++from) add(from == rank() ? 0 : partial_bytes(rows_[index_of(rank())]), rank());
  sharding.keys = sharding.queries;
  Step queries, partials;
  queries.lane = partials.lane = Lane::near;
  partials.number = 1;
  const auto buffer = [](std::size_t part) { return BufferId{static_cast<int>(part)}; };
  for (Rank peer = 0; peer < ranks(); ++peer) {
    if (peer == rank()) continue;
    queries.ops.push_back(Send{buffer(query_part(rank())), peer});
    queries.ops.push_back(Recv{buffer(query_part(peer)), peer});
    if (rows_[index_of(peer)] > 0) partials.ops.push_back(Send{buffer(partial_part(peer)), peer});
    if (rows_[index_of(rank())] > 0) partials.ops.push_back(Recv{buffer(received_part(peer)), peer});
  }
  program.steps = {std::move(queries), std::move(partials)};
  const std::size_t bytes = slots_bytes(program);
  table_.reset();
  if (bytes > bytes_) {
    memory_.reset();
    memory_ = allocate_aligned(bytes);
    bytes_ = bytes;
  }
  table->buffers = std::make_unique<BufferTable>(table->outline, table->program, rank(), MemorySpace::host, memory_);
  if (ranks() > 1) transport_.prepare(*table->buffers);
  table_ = std::move(table);
}

void ServingExchange::submit(std::size_t step) {
  const Step& exchange = table_->program.steps[step];
  if (exchange.ops.empty()) return;
  transport_.resting();
  transport_.submit(exchange, *table_->buffers, {}).wait();
  transport_.computing(-1);
}

void ServingExchange::share_queries(const Agreed& mine) {
  static_assert(sizeof mine <= header);
  std::memcpy(at(query_part(rank()), 0), &mine, sizeof mine);
  submit(0);
  for (Rank peer = 0; peer < ranks(); ++peer) {
    Agreed other{};
    std::memcpy(&other, at(query_part(peer), 0), sizeof other);
    if (other.handle != mine.handle) {
      throw Error(ErrorKind::peer,
                  fmt::format("rank {} serves with a handle for another problem, or other blocks, than rank {} (they "
                              "would merge what does not belong together): make all from the same",
                              peer, rank()));
    }
    if (other.requests == mine.requests) continue;
    throw Error(ErrorKind::peer,
                fmt::format("rank {} serves other requests than rank {} (a call has one list): give all "
                            "ranks the same",
                            peer, rank()));
  }
}

void ServingExchange::return_partials() { submit(1); }

}  // namespace distattn
