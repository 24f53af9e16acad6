#include "distattn/band.hpp"

namespace distattn {
namespace {

/// The part of `run` in [begin, end). Most runs lie inside, and then nothing is divided.
Run within(const Run& run, std::int64_t begin, std::int64_t end) {
  if (run.count <= 0 || (begin <= run.start && run.at(run.count - 1) < end)) return run;
  const IndexRange range = indices_within(run, begin, end);
  return {run.at(range.begin), range.end - range.begin, run.stride};
}

/// Σ ⌊(a·i + b)/m⌋ over 0 ≤ i < n, for a, b ≥ 0 and m > 0: Euclid's algorithm on (a, m), each turn a lattice count.
std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  while (n > 0) {
    sum += (a / m) * (n * (n - 1) / 2) + (b / m) * n;
    a %= m;
    b %= m;
    const std::int64_t top = a * n + b;
    if (top < m) break;
    n = top / m;
    b = top % m;
    const std::int64_t old_a = a;
    a = m;
    m = old_a;
  }
  return sum;
}

/// Pairs with q − k ≤ limit. A query at index i sees all keys but the first ⌈(queries.at(i) − limit −
/// keys.start)/stride⌉: all of them up to some i, none from another i on, and a floor sum between the two.
std::int64_t pairs_within(const Run& queries, const Run& keys, std::int64_t limit) {
  const std::int64_t q_last = queries.at(queries.count - 1), k_last = keys.at(keys.count - 1);
  if (limit >= q_last - keys.start) return queries.count * keys.count;
  if (limit < queries.start - k_last) return 0;
  const std::int64_t all = indices_within(queries, -unbounded, keys.start + limit + 1).end;
  const std::int64_t some = indices_within(queries, -unbounded, k_last + limit + 1).end;
  const std::int64_t hidden =
      floor_sum(some - all, keys.stride, queries.stride, queries.at(all) - limit - keys.start + keys.stride - 1);
  return some * keys.count - hidden;
}

}  // namespace

bool touches(const Band& band, const Run& queries, const Run& keys) {
  const Run rows = within(queries, band.q0, band.q1), columns = within(keys, band.k0, band.k1);
  if (rows.count <= 0 || columns.count <= 0 || band.lo > band.hi) return false;
  const std::int64_t least = rows.start - columns.at(columns.count - 1);
  const std::int64_t most = rows.at(rows.count - 1) - columns.start;
  if (most < band.lo || least > band.hi) return false;
  if (most <= band.hi || least >= band.lo) return true;
  if (rows.stride != columns.stride) return visible_pairs(band, rows, columns) > 0;
  // Here least < lo ≤ hi < most, and differences come in steps of the common stride from least on.
  return least + ceil_div(band.lo - least, rows.stride) * rows.stride <= band.hi;
}

std::int64_t visible_pairs(const Band& band, const Run& queries, const Run& keys) {
  const Run rows = within(queries, band.q0, band.q1), columns = within(keys, band.k0, band.k1);
  if (rows.count <= 0 || columns.count <= 0 || band.lo > band.hi) return 0;
  return pairs_within(rows, columns, band.hi) - pairs_within(rows, columns, band.lo - 1);
}

}  // namespace distattn
