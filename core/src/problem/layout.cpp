#include "distattn/layout.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include <fmt/core.h>

#include "distattn/dealing.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Of striped layouts: longer than any sequence.
constexpr std::int64_t longest_block = std::numeric_limits<std::int32_t>::max();
/// Pairs of dealt blocks. Few ranks hold them all, and each pair takes them memory.
constexpr std::int64_t most_pairs_of_blocks = std::int64_t{1} << 24;

/// ⌊tokens·k/n⌋ without the product.
std::int64_t cut_point(std::int64_t tokens, std::int64_t k, std::int64_t n) {
  return tokens / n * k + tokens % n * k / n;
}

/// Segment k of n equal ones.
Run nth_of(std::int64_t tokens, std::int64_t k, std::int64_t n) {
  const std::int64_t begin = cut_point(tokens, k, n);
  return {begin, cut_point(tokens, k + 1, n) - begin, 1};
}

std::vector<Segment> lay_out(const Layout& layout, std::int64_t tokens, int ranks, const BandIndex& mask,
                             std::int64_t first) {
  switch (layout.kind) {
    case LayoutKind::block:
      return block_segments(tokens, ranks, layout.split);
    case LayoutKind::zigzag:
      return zigzag_segments(tokens, ranks);
    case LayoutKind::striped:
      return layout.block == 1 ? striped_segments(tokens, ranks) : dealt_segments(tokens, ranks, layout.block);
    case LayoutKind::chunked:
      return chunked_segments(tokens, ranks, mask, 4, first);
    case LayoutKind::given:
      break;
  }
  return {};
}

/// The queries of given segments. Segment i of the queries is in segment i of the keys, and may be empty.
std::vector<Segment> queries_among(std::vector<Segment> keys, const Problem& problem) {
  for (Segment& segment : keys) {
    Run& run = segment.run;
    const IndexRange queries = indices_within(run, problem.first_query(), problem.seq_kv);
    run = {queries.empty() ? problem.first_query() : run.at(queries.begin), queries.end - queries.begin, run.stride};
  }
  return keys;
}

}  // namespace

const char* name_of(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::block:
      return "block";
    case LayoutKind::zigzag:
      return "zigzag";
    case LayoutKind::striped:
      return "striped";
    case LayoutKind::chunked:
      return "chunked";
    case LayoutKind::given:
      return "given";
  }
  return "?";
}

std::string to_string(const Layout& layout) {
  if (layout.block != 1) return fmt::format("{}:{}", name_of(layout.kind), layout.block);
  return layout.split == 1 ? name_of(layout.kind) : fmt::format("{} split {}", name_of(layout.kind), layout.split);
}

std::optional<Layout> layout_named(std::string_view name) {
  for (const LayoutKind kind : named_layouts)
    if (name == name_of(kind)) return Layout{kind};
  constexpr std::string_view dealt = "striped:";
  if (!name.starts_with(dealt)) return std::nullopt;
  Layout layout{LayoutKind::striped};
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dealt.size(), end, layout.block);
  if (error != std::errc{} || rest != end || layout.block < 1 || layout.block > longest_block)
    refuse(fmt::format("layout {} (blocks of B tokens are dealt out, B is 1 to {}): write striped:64", name,
                       longest_block));
  return layout;
}

std::string why_not_dealt(const Layout& layout, const Problem& problem, int ranks) {
  if (layout.block < 2 || ranks < 2) return "";
  const std::int64_t queries = ceil_div(problem.seq_q, layout.block), keys = ceil_div(problem.seq_kv, layout.block);
  if (keys <= most_pairs_of_blocks / queries) return "";
  return fmt::format("{} deals out {} blocks of queries and {} of keys, and {} pairs of blocks are most",
                     to_string(layout), queries, keys, most_pairs_of_blocks);
}

std::vector<Segment> block_segments(std::int64_t tokens, int ranks, int split) {
  std::vector<Segment> out;
  const int n = ranks * split;
  for (int k = 0; k < n; ++k) out.push_back({nth_of(tokens, k, n), k / split});
  return out;
}

std::vector<Segment> zigzag_segments(std::int64_t tokens, int ranks) {
  std::vector<Segment> out;
  const int n = 2 * ranks;
  for (int k = 0; k < n; ++k) out.push_back({nth_of(tokens, k, n), std::min(k, n - 1 - k)});
  return out;
}

std::vector<Segment> striped_segments(std::int64_t tokens, int ranks) {
  std::vector<Segment> out;
  for (int p = 0; p < ranks; ++p) out.push_back({{p, (tokens - p + ranks - 1) / ranks, ranks}, p});
  return out;
}

std::vector<Segment> dealt_segments(std::int64_t tokens, int ranks, std::int64_t block) {
  if (ranks == 1) block = std::max(block, tokens);  // consecutive blocks of one rank are one
  const Dealing dealing{block, ranks};
  std::vector<Segment> out;
  for (std::int64_t first = 0; first < tokens; first += block)
    out.push_back({{first, std::min(block, tokens - first), 1}, dealing.owner(first)});
  for (Rank rank = static_cast<Rank>(out.size()); rank < ranks; ++rank) out.push_back({{tokens, 0, 1}, rank});
  return out;
}

std::vector<Segment> chunked_segments(std::int64_t tokens, int ranks, const BandIndex& mask, int per_rank,
                                      std::int64_t first) {
  std::vector<Segment> chunks = block_segments(tokens, ranks, per_rank);
  const Run all_keys{0, first + tokens, 1};
  std::vector<std::int64_t> work;
  for (const Segment& chunk : chunks)
    work.push_back(mask.pairs({chunk.run.start + first, chunk.run.count, 1}, all_keys));

  std::vector<std::size_t> heaviest_first(chunks.size());
  std::iota(heaviest_first.begin(), heaviest_first.end(), std::size_t{0});
  std::stable_sort(heaviest_first.begin(), heaviest_first.end(),
                   [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });

  using Load = std::pair<std::int64_t, Rank>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> with_room;
  for (Rank rank = 0; rank < ranks; ++rank) with_room.push({0, rank});
  std::vector<int> room(index(ranks), per_rank);
  for (const std::size_t x : heaviest_first) {
    const auto [load, rank] = with_room.top();
    with_room.pop();
    chunks[x].owner = rank;
    if (--room[index(rank)] > 0) with_room.push({load + work[x], rank});
  }
  return chunks;
}

std::vector<Segment> cut_segments(const std::vector<Segment>& segments, std::int64_t position) {
  std::vector<Segment> out;
  for (const Segment& segment : segments) {
    const Run& run = segment.run;
    const std::int64_t before = indices_within(run, -unbounded, position).end;
    if (before == 0 || before == run.count) {
      out.push_back(segment);
    } else {
      out.push_back({{run.start, before, run.stride}, segment.owner});
      out.push_back({{run.at(before), run.count - before, run.stride}, segment.owner});
    }
  }
  return out;
}

std::vector<HeadGroup> head_groups(int heads, int kv_heads, int groups) {
  if (groups < 1 || groups > heads)
    refuse(
        fmt::format("{} head groups of {} heads (a group holds at least one): choose 1 to {}", groups, heads, heads));
  const int per_kv = heads / kv_heads;
  std::vector<HeadGroup> out;
  for (int u = 0, q0 = 0; u < groups; ++u) {
    const int count = heads / groups + (u < heads % groups ? 1 : 0);
    const int kv0 = q0 / per_kv;
    out.push_back({q0, count, kv0, (q0 + count - 1) / per_kv + 1 - kv0});
    q0 += count;
  }
  return out;
}

Sharding shard(const Problem& problem, int ranks, Layout layout, int groups) {
  if (ranks < 1) refuse(fmt::format("{} ranks (someone has to compute): give 1 or more", ranks));
  if (layout.split < 1 || (layout.split > 1 && layout.kind != LayoutKind::block))
    refuse(fmt::format("layout {} split {} (only block shards are split): choose split 1", name_of(layout.kind),
                       layout.split));
  if (layout.block < 1 || layout.block > longest_block || (layout.block > 1 && layout.kind != LayoutKind::striped))
    refuse(fmt::format("layout {} with blocks of {} tokens (striped alone deals out blocks, of 1 to {}): choose 1",
                       name_of(layout.kind), layout.block, longest_block));
  if (const std::string why = why_not_dealt(layout, problem, ranks); !why.empty())
    refuse(fmt::format("layout {} (planning takes memory for each): deal out longer blocks", why));
  Sharding out{problem, ranks, layout, {}, {}, head_groups(problem.heads, problem.kv_heads, groups)};
  if (layout.kind == LayoutKind::given) {
    if (layout.segments == nullptr) refuse("a given layout without segments (the planner makes them): plan it");
    out.keys = *layout.segments;
    out.queries = problem.seq_q == problem.seq_kv ? out.keys : queries_among(out.keys, problem);
    check(out);
    return out;
  }
  const BandIndex mask(bands_of(problem.mask));
  out.keys = cut_segments(lay_out(layout, problem.seq_kv, ranks, mask, 0), problem.mask.sinks);
  if (problem.seq_q == problem.seq_kv) {
    out.queries = out.keys;
  } else {
    out.queries = lay_out(layout, problem.seq_q, ranks, mask, problem.first_query());
    for (Segment& segment : out.queries) segment.run.start += problem.first_query();
  }
  return out;
}

std::int64_t owned_tokens(std::span<const Segment> segments, Rank rank) {
  std::int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.owner == rank ? segment.run.count : 0;
  return tokens;
}

std::vector<std::int64_t> positions(std::span<const Segment> segments, Rank rank) {
  std::vector<std::int64_t> out;
  for (const Segment& segment : segments)
    if (segment.owner == rank)
      for (std::int64_t i = 0; i < segment.run.count; ++i) out.push_back(segment.run.at(i));
  return out;
}

}  // namespace distattn
