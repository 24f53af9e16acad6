/// The emulator's Hopper: copies, barriers and products do what the PTX documentation says, and faults are found.

#include "catch.hpp"
#include "kernels/cuda/hopper/query_addition.cuh"
#include "simt/faults.hpp"

namespace {

using namespace distattn::kernels::cuda;
using distattn::Band;
using distattn::Run;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;
using simt::Array;
using simt::faulty_seeds;
using simt::mentions;
using simt::message_of;
using simt::seeds;

/// Elements of small integers, which 16 bits hold exactly.
template <class Element>
float value_at(std::size_t i) {
  return static_cast<float>((i * 37 + i / 64 * 5) % 9) - 4;
}
template <class Element>
Array<Element> some_elements(std::size_t count) {
  Array<Element> elements(count);
  for (std::size_t i = 0; i < count; ++i) elements[i] = prim::from_float<Element>(value_at<Element>(i));
  return elements;
}

template <class Element>
Array<TensorMap> map_of(const Element* base, const TensorShape& shape) {
  Array<TensorMap> map(1);
  REQUIRE(prim::describe_tensor(map[0], base, shape) == 0);
  return map;
}

enum class Fault {
  none,
  early_parity,
  few_bytes,
  many_bytes,
  early_release,
  no_release,
  one_arrival_too_few,
  not_published,
  map_not_acquired,
};

constexpr int rounds = 5;
using CopiedTile = PanelTile<8, 64>;

/// Warp 0 copies tiles through two buffers, warp 1 sums the first column of each row.
template <Fault fault>
void copy_and_sum(const TensorMap* map, float* out) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t tiles = prim::shared_address(memory), filled = tiles + 2 * CopiedTile::bytes;
  const std::uint32_t emptied = filled + 16;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      prim::init_barrier(filled + stage * 8, 1);
      prim::init_barrier(emptied + stage * 8, fault == Fault::one_arrival_too_few ? 31 : 32);
    }
    if (fault != Fault::not_published) prim::publish_barriers();
  }
  __syncthreads();
  for (int i = 0; i < rounds; ++i) {
    const Stage stage(i);
    const std::uint32_t tile = tiles + stage.index * CopiedTile::bytes;
    if (threadIdx.x == 0) {
      stage.await_emptied(emptied);
      constexpr int wrong = fault == Fault::few_bytes ? -16 : fault == Fault::many_bytes ? 16 : 0;
      prim::arrive_expecting(stage.of(filled), static_cast<std::uint32_t>(CopiedTile::bytes + wrong));
      if (fault != Fault::map_not_acquired) prim::acquire_tensor_map(map);
      CopiedTile::load(tile, map, stage.of(filled), 8 * i, 0);
    } else if (threadIdx.x >= 32) {
      prim::wait_for_phase(stage.of(filled), stage.parity ^ (fault == Fault::early_parity ? 1u : 0u));
      if (fault == Fault::early_release) prim::arrive(stage.of(emptied));
      if (lane < 8) {
        const auto bits = prim::load_shared<std::uint16_t>(tile + static_cast<std::uint32_t>(lane * 128 + lane * 16));
        prim::store_global(out + 8 * i + lane, prim::to_float(Bf16{bits}));
      }
      if (fault != Fault::early_release && fault != Fault::no_release) prim::arrive(stage.of(emptied));
    }
  }
}

template <Fault fault>
std::uint64_t faulty_copies() {
  constexpr int rows = 8 * rounds - 3;
  const auto elements = some_elements<Bf16>(rows * 64);
  const auto map = map_of(elements.data(), {64, rows, 1, 8});
  std::vector<float> want(8 * rounds);
  for (std::size_t row = 0; row < rows; ++row) want[row] = value_at<Bf16>(row * 64);
  return faulty_seeds([&](float* out) { copy_and_sum<fault>(map.data(), out); }, 64, want);
}

}  // namespace

TEST_CASE("bulk copies land under their barrier, in any order", "[simt]") {
  CHECK(faulty_copies<Fault::none>() == 0);
  CHECK(faulty_copies<Fault::early_parity>() == seeds);
  CHECK(faulty_copies<Fault::few_bytes>() == seeds);
  CHECK(faulty_copies<Fault::many_bytes>() == seeds);
  CHECK(faulty_copies<Fault::no_release>() == seeds);
  CHECK(faulty_copies<Fault::not_published>() == seeds);
  CHECK(faulty_copies<Fault::map_not_acquired>() == seeds);
  // A release counts for the whole warp: what its other lanes still read is seen where it goes wrong.
  CHECK(faulty_copies<Fault::early_release>() > seeds / 4);
  CHECK(faulty_copies<Fault::one_arrival_too_few>() > seeds / 4);
}

TEST_CASE("tensor maps say what may be copied", "[simt]") {
  const auto elements = some_elements<Bf16>(64);
  TensorMap map;
  CHECK(prim::describe_tensor(map, elements.data(), {12, 4, 1, 8}) != 0);
  CHECK(prim::describe_tensor(map, elements.data() + 4, {8, 4, 1, 8}) != 0);
  CHECK(prim::describe_tensor(map, elements.data(), {8, 4, 1, 257}) != 0);
  const auto too_large = map_of(elements.data(), {64, 2, 1, 8});
  const auto past_the_end = message_of(
      [&] {
        DISTATTN_SHARED_MEMORY(memory);
        prim::init_barrier(prim::shared_address(memory) + 1024, 1);
        prim::publish_barriers();
        prim::acquire_tensor_map(too_large.data());
        prim::load_box(prim::shared_address(memory), too_large.data(), prim::shared_address(memory) + 1024, 0, 0, 0);
      },
      1);
  CHECK(mentions(past_the_end, "outside every array"));
  const auto unfilled = Array<TensorMap>(1);
  CHECK(mentions(message_of([&] { prim::acquire_tensor_map(unfilled.data()); }, 1), "nobody has filled"));
}

namespace {

enum class ProductFault { none, no_fence, no_wait, early_overwrite, wrong_step };

constexpr int depth = 32;

/// One warpgroup multiplies 64 × columns, 32 deep. transposed: the right operand's columns are contiguous.
template <class Element, int columns, bool registers, bool transposed, ProductFault fault>
void multiply_once(const TensorMap* left_map, const TensorMap* right_map, float* out) {
  using Left = PanelTile<64, 64>;
  using Right = std::conditional_t<transposed, PanelTile<depth, columns>, PanelTile<columns, 64>>;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t left = prim::shared_address(memory), right = left + Left::bytes, barrier = right + Right::bytes;
  const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    prim::init_barrier(barrier, 1);
    prim::publish_barriers();
    prim::arrive_expecting(barrier, Left::bytes + Right::bytes);
    prim::acquire_tensor_map(left_map);
    prim::acquire_tensor_map(right_map);
    Left::load(left, left_map, barrier, 0, 0);
    Right::load(right, right_map, barrier, 0, 0);
  }
  __syncthreads();
  prim::wait_for_phase(barrier, 0);
  float d[columns / 8][4];
  std::uint32_t a[depth / 16][4];
  for (int k = 0; k < depth / 16; ++k) {
    prim::load_matrices(a[k], SharedTile<64>::further(SharedTile<64>::rows_of_lane(left, warp * 16), 0, 2 * k));
  }
  for (auto& piece : d) std::fill(piece, piece + 4, 1.0f);
  if (fault != ProductFault::no_fence) prim::fence_products(d, a);
  for (int k = 0; k < depth / 16; ++k) {
    const int step = fault == ProductFault::wrong_step ? 8 * k : 16 * k;
    const std::uint64_t b = transposed ? Right::by_columns(right, 16 * k, 0) : Right::by_rows(right, 0, step);
    constexpr prim::Major major = transposed ? prim::Major::other : prim::Major::depth;
    if constexpr (registers) {
      prim::multiply<Element, major>(d, a[k], b, k > 0);
    } else {
      prim::multiply<Element, prim::Major::depth, major>(d, Left::by_rows(left, 0, step), b, k > 0);
    }
  }
  prim::commit_products();
  if (fault == ProductFault::early_overwrite) {
    if (registers) a[1][2] = 0;
    prim::store_shared(right + 16 * threadIdx.x, 0.0f);
  }
  prim::wait_for_products<fault == ProductFault::no_wait ? 1 : 0>(d);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    prim::store_global(out + row * columns + column, d[i / 4][i % 4]);
  }
}

template <class Element, int columns, bool registers, bool transposed, ProductFault fault = ProductFault::none>
std::uint64_t faulty_products() {
  const auto left = some_elements<Element>(64 * 64), right = some_elements<Element>(64 * 256);
  const TensorShape right_shape =
      transposed ? TensorShape{columns, depth, 1, depth} : TensorShape{64, columns, 1, columns};
  const auto left_map = map_of(left.data(), {64, 64, 1, 64}), right_map = map_of(right.data(), right_shape);
  std::vector<float> want(64 * columns);
  for (std::size_t row = 0; row < 64; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t k = 0; k < depth; ++k) {
        const std::size_t at = transposed ? k * columns + column : column * 64 + k;
        want[row * columns + column] += value_at<Element>(row * 64 + k) * value_at<Element>(at);
      }
    }
  }
  constexpr std::size_t right_bytes = transposed ? (columns + 63) / 64 * depth * 128 : columns * 128;
  return faulty_seeds(
      [&](float* out) {
        multiply_once<Element, columns, registers, transposed, fault>(left_map.data(), right_map.data(), out);
      },
      128, want, 64 * 128 + right_bytes + 8);
}

}  // namespace

TEST_CASE("a warpgroup multiplies as the PTX documentation says", "[simt]") {
  CHECK(faulty_products<Bf16, 64, false, false>() == 0);
  CHECK(faulty_products<Fp16, 128, false, true>() == 0);
  CHECK(faulty_products<Bf16, 128, true, false>() == 0);
  CHECK(faulty_products<Fp16, 64, true, true>() == 0);
  CHECK(faulty_products<Bf16, 256, true, true>() == 0);
}

TEST_CASE("faults of products are found", "[simt]") {
  using enum ProductFault;
  CHECK(faulty_products<Bf16, 64, false, false, no_fence>() == seeds);
  CHECK(faulty_products<Bf16, 64, false, false, wrong_step>() == seeds);
  CHECK(faulty_products<Bf16, 64, false, false, no_wait>() == seeds);
  CHECK(faulty_products<Bf16, 64, true, true, early_overwrite>() == seeds);
}

namespace {

enum class StoreFault { none, no_fence, no_wait };

/// Every warp adds boxes of its own to the same rows.
template <StoreFault fault>
void add_rows(const TensorMap* map) {
  DISTATTN_SHARED_MEMORY(memory);
  constexpr std::uint32_t box_bytes = 8 * box_row_bytes;
  const std::uint32_t box = prim::shared_address(memory) + threadIdx.x / 32 * box_bytes;
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = threadIdx.x % 32; i < box_bytes / 4; i += 32) {
      prim::store_shared(box + i * 4, static_cast<float>(1 + round));
    }
    if (fault != StoreFault::no_fence) prim::fence_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      prim::acquire_tensor_map(map);
      prim::add_box(map, box, 0, 2, 0);
      prim::commit_stores();
      prim::wait_for_stores<fault == StoreFault::no_wait ? 1 : 0>();
    }
    __syncwarp();
  }
}

template <StoreFault fault>
std::uint64_t faulty_stores() {
  std::uint64_t faulty = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Array<float> sums(5 * 8, 0.5f);
    const auto map = map_of(sums.data(), {8, 5, 1, 8});
    try {
      simt::launch(add_rows<fault>, {1, 64, 2 * 8 * box_row_bytes, seed}, map.data());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        if (sums[i] != (i < 2 * 8 ? 0.5f : 12.5f)) {
          ++faulty;
          break;
        }
      }
    } catch (const simt::Error&) {
      ++faulty;
    }
  }
  return faulty;
}

}  // namespace

TEST_CASE("boxes are added to what lies inside the tensor", "[simt]") {
  CHECK(faulty_stores<StoreFault::none>() == 0);
  CHECK(faulty_stores<StoreFault::no_fence>() == seeds);
  CHECK(faulty_stores<StoreFault::no_wait>() == seeds);
}

namespace {

/// Two warpgroups that multiply take the registers that one that copies gives back.
template <int producer, int consumer, int producer_warps = 4>
std::string message_of_registers() {
  return message_of(
      [] {
        if (threadIdx.x < 256) {
          prim::more_registers<consumer>();
        } else if (threadIdx.x / 32 < 8 + producer_warps) {
          prim::fewer_registers<producer>();
        }
      },
      384);
}

}  // namespace

TEST_CASE("warpgroups have no more registers than a block has", "[simt]") {
  CHECK(message_of_registers<24, 240>().empty());
  CHECK(mentions(message_of_registers<24, 248>(), "at setmaxnreg"));
  CHECK(mentions(message_of_registers<32, 240>(), "at setmaxnreg"));
  CHECK(mentions(message_of_registers<24, 160>(), "a warp of 168 registers asks for 160"));
  CHECK(mentions(message_of_registers<24, 176, 2>(), "the warps of a warpgroup differ"));
}

TEST_CASE("16 lanes that store pairs of dQ at a time write to every bank once", "[simt]") {
  for (int n = 0; n < 4; ++n) {
    for (int first_lane : {0, 16}) {
      std::uint32_t banks = 0;
      for (int lane = first_lane; lane < first_lane + 16; ++lane) {
        const int floats = 8 * stored_piece(lane, n) + lane % 4 * 2;
        banks |= 3u << (swizzled_chunk(0, lane / 4, floats / 4) / 4 % 32 + static_cast<std::uint32_t>(floats % 4));
      }
      CHECK(banks == ~0u);
    }
  }
}

namespace {

/// Marks the pairs of a tile, 64 rows by `columns`, that its masks show.
template <int columns>
void mark_visible(const AttendParams& p, float* out) {
  const TileMasks<columns / 8> masks(p, TileCursor(p.visits, *p.blocks), 0);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = row_of<1>(0, i / 2 % 2), column = i / 4 * 8 + column_of() + i % 2;
    prim::store_global(out + row * columns + column, !masks.cut || masks.sees(i / 4, i % 4) ? 1.0f : 0.0f);
  }
}

template <int columns>
std::uint64_t faulty_masks(const Run& rows, const Run& keys, const std::vector<Band>& bands) {
  std::vector<Cut> cuts;
  for (const Band& band : bands) {
    for (const Cut& cut : cuts_of(band, rows, {0, rows.count}, keys)) cuts.push_back(cut);
  }
  const Block block{.last_visit = 1};
  const Visit visit{.begin = columns, .end = 2 * columns, .last_cut = static_cast<int>(cuts.size())};
  AttendParams params;
  params.blocks = &block;
  params.visits = &visit;
  params.cuts = cuts.data();
  std::vector<float> want(64 * columns);
  for (int at = 0; at < 64 * columns; ++at) {
    const int row = at / columns, key = columns + at % columns;
    const bool exists = bands.empty() || key < keys.count;
    const bool seen = bands.empty() || std::any_of(bands.begin(), bands.end(), [&](const Band& band) {
                        return band.holds(rows.at(row), keys.at(key));
                      });
    want[static_cast<std::size_t>(at)] = exists && seen ? 1.0f : 0.0f;
  }
  return faulty_seeds([&](float* out) { mark_visible<columns>(params, out); }, 128, want);
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("masks of a tile show what its bands hold", "[simt]", ((int columns), columns), 48, 64, 80, 96,
                       128, 176, 192) {
  const Run rows{columns, 64}, keys{0, 2 * columns};
  CHECK(faulty_masks<columns>(rows, keys, {}) == 0);
  CHECK(faulty_masks<columns>(rows, keys, {{.lo = 0}}) == 0);
  CHECK(faulty_masks<columns>(rows, keys, {{.lo = -columns + 5, .hi = 13}}) == 0);
  CHECK(faulty_masks<columns>({0, 64, 3}, {1, 2 * columns - 7, 2}, {{.lo = -500}}) == 0);
  CHECK(faulty_masks<columns>(rows, keys, {{.q1 = columns + 30, .lo = 3}, {.q0 = columns + 30, .lo = -9, .hi = 2}}) ==
        0);
  CHECK(faulty_masks<columns>(rows, keys, {{.k1 = columns + 11, .lo = 0}, {.k0 = columns + 26, .lo = -40}}) == 0);
}
