#include "kernels/cuda/work.hpp"

#include <algorithm>

#include "distattn/error.hpp"

namespace distattn::kernels::cuda {
namespace {

std::int32_t narrowed(std::int64_t value) {
  DISTATTN_EXPECT(value == static_cast<std::int32_t>(value));
  return static_cast<std::int32_t>(value);
}

/// A tile that `band` cuts. Tiles are numbered along the columns.
struct CutTile {
  std::int64_t tile;
  const Band* band;
};

/// Lists the visits of one block in one pairing: whole stretches and cut tiles, from left to right.
class VisitLister {
 public:
  VisitLister(const Pairing& pairing, int columns_per_tile, WorkList& list)
      : pairing_(pairing), per_tile_(columns_per_tile), list_(list) {}

  void list(const Run& own, IndexRange rows, std::span<const Band* const> bands) {
    own_ = own;
    rows_ = rows;
    whole_.clear();
    cut_.clear();
    first_visit_ = list_.visits.size();
    for (const Band* band : bands) classify_tiles(own, rows, *band);
    std::sort(whole_.begin(), whole_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::stable_sort(cut_.begin(), cut_.end(), [](const auto& a, const auto& b) { return a.tile < b.tile; });
    auto whole = whole_.begin();
    for (auto first = cut_.begin(); first != cut_.end();) {
      const auto last = std::find_if(first, cut_.end(), [&](const CutTile& cut) { return cut.tile != first->tile; });
      for (; whole != whole_.end() && whole->begin < first->tile; ++whole) add_whole(*whole);
      add_cut({first, last});
      first = last;
    }
    for (; whole != whole_.end(); ++whole) add_whole(*whole);
  }

 private:
  // Both ends of what a row sees never fall from row to row, so the outer rows settle all between them.
  void classify_tiles(const Run& own, IndexRange rows, const Band& band) {
    const IndexRange reached = band_rows(band, own);
    const IndexRange inside{std::max(rows.begin, reached.begin), std::min(rows.end, reached.end)};
    if (inside.empty()) return;
    const std::int64_t top = own.at(inside.begin), bottom = own.at(inside.end - 1);
    const IndexRange seen_by_any{first_column(band, top), last_column(band, bottom)};
    if (seen_by_any.empty()) return;
    const IndexRange seen_by_all{first_column(band, bottom), last_column(band, top)};
    const IndexRange touched{seen_by_any.begin / per_tile_, ceil_div(seen_by_any.end, per_tile_)};
    IndexRange whole{ceil_div(seen_by_all.begin, per_tile_), seen_by_all.end / per_tile_};
    const bool all_rows = inside.begin == rows.begin && inside.end == rows.end;
    if (!all_rows || whole.empty()) whole = {touched.end, touched.end};
    if (!whole.empty()) whole_.push_back(whole);
    for (std::int64_t tile = touched.begin; tile < whole.begin; ++tile) cut_.push_back({tile, &band});
    for (std::int64_t tile = whole.end; tile < touched.end; ++tile) cut_.push_back({tile, &band});
  }

  std::int64_t first_column(const Band& band, std::int64_t row) const {
    return indices_within(pairing_.columns, std::max(row - band.hi, band.k0), unbounded).begin;
  }
  std::int64_t last_column(const Band& band, std::int64_t row) const {
    return indices_within(pairing_.columns, -unbounded, std::min(row - band.lo + 1, band.k1)).end;
  }

  void add_whole(IndexRange tiles) {
    list_.visits.push_back({pairing_.other, narrowed(tiles.begin * per_tile_), narrowed(tiles.end * per_tile_), 0, 0});
  }

  void add_cut(std::span<const CutTile> bands) {
    const std::int64_t begin = bands.front().tile * per_tile_;
    const std::int64_t end = std::min(begin + per_tile_, pairing_.columns.count);
    if (continues_last_visit(begin, bands)) {
      list_.visits.back().end = narrowed(end);
      return;
    }
    const auto first_cut = narrowed(static_cast<std::int64_t>(list_.cuts.size()));
    for (const CutTile& cut : bands) add_cuts(*cut.band);
    const auto last_cut = narrowed(static_cast<std::int64_t>(list_.cuts.size()));
    list_.visits.push_back({pairing_.other, narrowed(begin), narrowed(end), first_cut, last_cut});
    bands_of_last_.clear();
    for (const CutTile& cut : bands) bands_of_last_.push_back(cut.band);
  }

  bool continues_last_visit(std::int64_t begin, std::span<const CutTile> bands) const {
    if (list_.visits.size() == first_visit_) return false;
    const Visit& last = list_.visits.back();
    return last.other == pairing_.other && last.end == begin && last.first_cut != last.last_cut &&
           std::equal(bands.begin(), bands.end(), bands_of_last_.begin(), bands_of_last_.end(),
                      [](const CutTile& cut, const Band* band) { return cut.band == band; });
  }

  void add_cuts(const Band& band) {
    const auto cuts = cuts_of(band, own_, rows_, pairing_.columns);
    list_.cuts.insert(list_.cuts.end(), cuts.begin(), cuts.end());
  }

  const Pairing& pairing_;
  std::int64_t per_tile_;
  WorkList& list_;
  std::size_t first_visit_ = 0;    // of the block that is being listed
  std::vector<IndexRange> whole_;  // in tiles
  std::vector<CutTile> cut_;
  std::vector<const Band*> bands_of_last_;  // of the last visit that is cut
  Run own_;
  IndexRange rows_;  // of the block
};

/// The bands of one pairing that reach a block's rows, for blocks from the first row to the last.
class BandSweep {
 public:
  BandSweep(const Pairing& pairing, const Run& own) : own_(own) {
    for (const Band& band : pairing.bands) waiting_.push_back(&band);
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Band* a, const Band* b) { return a->q0 < b->q0; });
  }

  std::span<const Band* const> at(IndexRange rows) {
    std::erase_if(active_, [&](const Band* band) { return band_rows(*band, own_).end <= rows.begin; });
    for (; next_ < waiting_.size() && band_rows(*waiting_[next_], own_).begin < rows.end; ++next_) {
      if (band_rows(*waiting_[next_], own_).end > rows.begin) active_.push_back(waiting_[next_]);
    }
    return active_;
  }

 private:
  Run own_;
  std::vector<const Band*> waiting_, active_;
  std::size_t next_ = 0;
};

std::int32_t tiles_of(std::span<const Visit> visits, int columns) {
  std::int64_t tiles = 0;
  for (const Visit& visit : visits) tiles += ceil_div(visit.end - visit.begin, columns);
  return narrowed(tiles);
}

}  // namespace

std::vector<Cut> cuts_of(const Band& band, const Run& own, IndexRange rows, const Run& columns) {
  const IndexRange reached = band_rows(band, own);
  const IndexRange of_keys = indices_within(columns, band.k0, band.k1);
  const std::int64_t first = std::max(rows.begin, reached.begin), last = std::min(rows.end, reached.end);
  const std::int64_t most = std::int64_t{1} << 29;  // so that sums with a row do not overflow
  DISTATTN_EXPECT(own.count < most && columns.count < most);
  const auto limited = [&](std::int64_t value) { return narrowed(std::clamp(value, -most, most)); };
  if (own.stride == columns.stride) {
    const std::int64_t ahead = own.start - columns.start, stride = own.stride;
    return {{narrowed(first), narrowed(last), narrowed(of_keys.begin), narrowed(of_keys.end),
             limited(ceil_div(ahead - band.hi, stride)), limited(ceil_div(ahead - band.lo + 1, stride))}};
  }
  std::vector<Cut> cuts;
  for (std::int64_t row = first; row < last; ++row) {
    const IndexRange seen = band_keys(band, own.at(row), columns);
    cuts.push_back(
        {narrowed(row), narrowed(row + 1), narrowed(seen.begin), narrowed(seen.end), limited(-most), limited(most)});
  }
  return cuts;
}

WorkList list_work(std::span<const OwnSide> sides, std::span<const Pairing> pairings, TileSize tile) {
  DISTATTN_EXPECT(tile.rows > 0 && tile.columns > 0);
  WorkList list;
  for (std::size_t own = 0; own < sides.size(); ++own) {
    const Run& run = sides[own].run;
    std::vector<VisitLister> listers;
    std::vector<BandSweep> sweeps;
    for (const Pairing& pairing : pairings) {
      if (static_cast<std::size_t>(pairing.own) != own) continue;
      listers.emplace_back(pairing, tile.columns, list);
      sweeps.emplace_back(pairing, run);
    }
    for (std::int64_t row = 0; row < run.count; row += tile.rows) {
      const IndexRange rows{row, std::min(row + tile.rows, run.count)};
      const auto first = narrowed(static_cast<std::int64_t>(list.visits.size()));
      for (std::size_t i = 0; i < listers.size(); ++i) listers[i].list(run, rows, sweeps[i].at(rows));
      const auto last = narrowed(static_cast<std::int64_t>(list.visits.size()));
      if (first == last && !sides[own].write_empty) continue;
      const auto visits = std::span(list.visits).subspan(static_cast<std::size_t>(first));
      list.blocks.push_back(
          {narrowed(static_cast<std::int64_t>(own)), narrowed(row), first, last, tiles_of(visits, tile.columns)});
    }
  }
  std::stable_sort(list.blocks.begin(), list.blocks.end(),
                   [](const Block& a, const Block& b) { return a.tiles > b.tiles; });
  return list;
}

}  // namespace distattn::kernels::cuda
