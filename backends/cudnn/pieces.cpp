#include "backends/cudnn/pieces.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "distattn/error.hpp"

namespace distattn::backends::cudnn {
namespace {

constexpr int largest_head_dim = 256, head_dim_step = 8;

std::int64_t count_of(const IndexRange& range) { return range.end - range.begin; }

Run part_of(const Run& run, const IndexRange& range) { return {run.at(range.begin), count_of(range), run.stride}; }

std::int64_t pairs_of(const Piece& piece) { return count_of(piece.rows) * count_of(piece.columns); }

/// Without the queries before and behind all that see a key, and without the keys before and behind all that are seen;
/// each narrows the other.
void trim(const Band& band, const Run& queries, const Run& keys, Piece& piece) {
  std::int64_t before = pairs_of(piece) + 1;
  while (!piece.rows.empty() && !piece.columns.empty() && pairs_of(piece) < before) {
    before = pairs_of(piece);
    const Run columns = part_of(keys, piece.columns);
    const IndexRange seeing =
        indices_within(queries, columns.start + band.lo, columns.at(columns.count - 1) + band.hi + 1);
    piece.rows = {std::max(piece.rows.begin, seeing.begin), std::min(piece.rows.end, seeing.end)};
    if (piece.rows.empty()) return;
    const Run rows = part_of(queries, piece.rows);
    const IndexRange seen = indices_within(keys, rows.start - band.hi, rows.at(rows.count - 1) - band.lo + 1);
    piece.columns = {std::max(piece.columns.begin, seen.begin), std::min(piece.columns.end, seen.end)};
  }
}

/// Bounds the trimmed piece by the band's diagonals; leaves it empty where none of its pairs is visible.
void bound(const Band& band, const Run& rows, const Run& columns, Piece& piece) {
  const std::int64_t offset = rows.start - columns.start;
  const std::int64_t least = ceil_div(band.lo - offset, rows.stride), most = floor_div(band.hi - offset, rows.stride);
  if (least > most) {  // no i - j lies between
    piece.rows.end = piece.rows.begin;
    return;
  }
  if (-least < columns.count - 1) piece.right = -least;
  if (rows.count - 1 > most) piece.left = most + 1;
}

std::optional<Piece> piece_of(const Run& queries, const Run& keys, const Band& band) {
  Piece piece{band_rows(band, queries), indices_within(keys, band.k0, band.k1), {}, {}};
  if (piece.rows.empty() || piece.columns.empty() || band.lo > band.hi) return std::nullopt;
  trim(band, queries, keys, piece);
  if (piece.rows.empty() || piece.columns.empty()) return std::nullopt;
  const Run rows = part_of(queries, piece.rows), columns = part_of(keys, piece.columns);
  if (rows.count == 1 || columns.count == 1 || classify(band, rows, columns) == Coverage::full) return piece;
  if (rows.stride != columns.stride) {
    refuse(
        fmt::format("cuDNN cannot express this tile (queries in steps of {} meet keys in steps of {}, and the mask "
                    "cuts them): take provider own, or another schedule",
                    rows.stride, columns.stride));
  }
  bound(band, rows, columns, piece);
  if (piece.rows.empty()) return std::nullopt;
  return piece;
}

}  // namespace

std::vector<Piece> pieces_of(const Run& queries, const Run& keys, std::span<const Band> bands) {
  std::vector<Piece> pieces;
  for (const Band& band : bands) {
    const auto piece = piece_of(queries, keys, band);
    if (!piece) continue;
    if (!piece->left || count_of(piece->rows) <= count_of(piece->columns)) {
      pieces.push_back(*piece);
      continue;
    }
    // The rows before the bound cuts any are a piece without it; what is left has no more rows than columns.
    Band before = band, behind = band;
    before.q1 = behind.q0 = queries.at(piece->rows.begin + *piece->left);
    for (const Band& part : {before, behind}) {
      if (const auto half = piece_of(queries, keys, part)) pieces.push_back(*half);
    }
  }
  return pieces;
}

std::string why_no_piece(const Piece& piece, Pass pass, std::size_t version) {
  constexpr std::size_t faulty_windows = 91400, last_faulty_gradients = 91500;
  constexpr std::int64_t right_columns = 1024, column_step = 128;
  const std::int64_t rows = count_of(piece.rows), columns = count_of(piece.columns);
  if (version == faulty_windows && piece.left && piece.right != 0 && columns > right_columns) {
    return fmt::format(
        "cuDNN 9.14.0 computes windows that are not causal wrongly over more than {} keys (these are {}): "
        "install a newer one, or take provider own",
        right_columns, columns);
  }
  if (pass == Pass::forward) return "";
  if (rows == 1 && columns == 1) {
    return "cuDNN computes no gradients of a single pair (it wants more queries or keys): take provider own";
  }
  if (version <= last_faulty_gradients && columns % column_step != 0) {
    return fmt::format(
        "cuDNN up to 9.15.0 computes gradients wrongly where keys are no multiple of {} (these are {}): "
        "install a newer one, or take provider own",
        column_step, columns);
  }
  return "";
}

std::string why_no_tile(const kernels::TileShape& shape) {
  if (const std::string why = why_missing("cuDNN", attend_features, features_of(shape)); !why.empty()) {
    return why + " (kernels of this project do, provider own)";
  }
  for (const int dim : {shape.head_dim, shape.value_dim}) {
    if (dim % head_dim_step != 0 || dim > largest_head_dim) {
      return fmt::format("cuDNN computes no attention with head dimension {} (it takes multiples of {} up to {})", dim,
                         head_dim_step, largest_head_dim);
    }
  }
  const kernels::Heads& heads = shape.heads;
  for (int h = 0; h < heads.q_count; ++h) {
    if (heads.q_count % heads.kv_count == 0 && heads.kv_of(h) == h / (heads.q_count / heads.kv_count)) continue;
    return fmt::format("cuDNN cannot express these head groups ({} query heads from {} on share {} key heads)",
                       heads.q_count, heads.q0, heads.kv_count);
  }
  return "";
}

std::string why_no_gradients(int head_dim, int value_dim, int architecture, std::size_t version) {
  constexpr int hopper = 9, blackwell = 10, common = 128;
  constexpr std::size_t two_dims = 91100, between_mended = 91300;
  const int generation = architecture / 10;
  const auto why = [&](const char* what) {
    return fmt::format("cuDNN computes no gradients of heads of {}/{} on a GPU of compute capability {}.{} ({})",
                       head_dim, value_dim, generation, architecture % 10, what);
  };
  if (generation == hopper) {
    const bool between = head_dim > common && head_dim < 192 && value_dim > 64 && value_dim < common;
    if (between && version >= two_dims && version < between_mended) return why("9.11 and 9.12 take 192 or 128 there");
    return "";
  }
  if (head_dim <= common && value_dim <= common) return "";
  if (generation == blackwell && version >= two_dims && head_dim == 192 && value_dim == common) return "";
  return why("it takes up to 128 there, and from 9.11 on 192/128 on Blackwell");
}

}  // namespace distattn::backends::cudnn
