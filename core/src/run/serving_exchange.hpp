#pragma once
/// What ranks send each other while they serve: queries to all, partial results to the owners of queries.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "distattn/cache.hpp"
#include "distattn/engine.hpp"
#include "distattn/index.hpp"
#include "distattn/serving.hpp"

namespace distattn {

/// The memory and the messages of calls whose requests have the same owners and queries; lengths change nothing.
class ServingExchange {
 public:
  ServingExchange(const Problem& problem, Transport& transport) : problem_(problem), transport_(transport) {}

  /// For these requests; keeps what is there if it fits.
  void prepare(std::span<const ServedRequest> requests);

  /// Where the queries of a request lie or come to lie, packed, and where what this rank makes of them goes.
  std::byte* queries(std::size_t request) { return at(query_part(owners_[request]), query_offset(request)); }
  CachePartial partial(std::size_t request);
  /// Of this rank's own rows: what it made of them, and what another rank did.
  CachePartial own() { return all_rows(rank(), partial_part(rank())); }
  CachePartial received(Rank from) { return all_rows(rank(), received_part(from)); }

  /// What ranks have in common.
  struct Agreed {
    std::uint64_t requests, handle;  ///< digests of the list and of what the handle is for
  };
  /// Every rank gets the queries of all, and hears whether all have the same in mind. Throws Error(peer) if not.
  void share_queries(const Agreed& mine);
  /// Every owner gets what the others made of its rows.
  void return_partials();

 private:
  struct Table;

  Rank rank() const { return transport_.rank(); }
  int ranks() const { return transport_.size(); }
  std::size_t query_part(Rank owner) const { return index_of(owner); }
  std::size_t partial_part(Rank owner) const { return index_of(ranks() + owner); }
  std::size_t received_part(Rank from) const { return index_of(2 * ranks() + from); }
  static std::size_t index_of(int part) { return index(part); }
  std::size_t query_offset(std::size_t request) const;
  std::byte* at(std::size_t part, std::size_t offset);
  CachePartial all_rows(Rank owner, std::size_t part) { return rows_of(part, rows_[index_of(owner)], 0, -1); }
  CachePartial rows_of(std::size_t part, std::int64_t all, std::int64_t first, std::int64_t count);
  std::size_t partial_bytes(std::int64_t rows) const;
  void submit(std::size_t step);

  const Problem& problem_;
  Transport& transport_;
  std::vector<Rank> owners_;           ///< by request
  std::vector<std::int64_t> queries_;  ///< by request
  std::vector<std::int64_t> first_;    ///< by request: its first row among those of its owner
  std::vector<std::int64_t> rows_;     ///< by owner: heads times queries
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
  std::shared_ptr<Table> table_;
};

}  // namespace distattn
