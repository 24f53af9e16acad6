#include "simt/hopper_primitive_kernels.hpp"

#include "kernels/cuda/hopper/tiles.cuh"

namespace simt::primitive {
namespace {

namespace cuda = distattn::kernels::cuda;
namespace prim = cuda::prim;
using cuda::PanelTile;
using cuda::TensorShape;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;

constexpr std::uint32_t box_bytes = copied_box_rows * cuda::box_row_bytes;

struct Corner {
  int column, row, plane;
};
__device__ Corner corner_of(const std::uint32_t* in) {
  return {static_cast<int>(prim::load_global(in)), static_cast<int>(prim::load_global(in + 1)),
          static_cast<int>(prim::load_global(in + 2))};
}

/// The host has filled the map just now. An ordinary access brings its page back to the GPU: nobody says that the copy
/// engine waits for one.
__device__ void use_map(const cuda::TensorMap* map) {
  (void)*reinterpret_cast<const volatile std::uint32_t*>(map);
  prim::acquire_tensor_map(map);
}

__global__ void load_one_box(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t box = prim::shared_address(memory), barrier = box + box_bytes;
  if (threadIdx.x == 0) {
    const Corner at = corner_of(args.in);
    use_map(args.maps);
    prim::init_barrier(barrier, 1);
    prim::publish_barriers();
    prim::arrive_expecting(barrier, box_bytes);
    prim::load_box(box, args.maps, barrier, at.column, at.row, at.plane);
  }
  __syncthreads();
  prim::wait_for_phase(barrier, 0);
  for (std::uint32_t i = threadIdx.x; i < box_bytes / 4; i += 64) {
    prim::store_global(args.out + i, prim::load_shared<std::uint32_t>(box + i * 4));
  }
}

template <class Element>
int start_load(const Arguments& args, Stream stream) {
  const auto* const tensor = reinterpret_cast<const Element*>(args.in + 4);
  const int status =
      prim::describe_tensor(args.maps[0], tensor, {tensor_columns, tensor_rows, tensor_planes, copied_box_rows});
  return status != 0 ? status : prim::launch(load_one_box, {1, 64, box_bytes + 8}, stream, args);
}

__global__ void add_boxes(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t box = prim::shared_address(memory) + threadIdx.x / 32 * box_bytes, lane = threadIdx.x % 32;
  const Corner at = corner_of(args.in);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = lane; i < box_bytes / 4; i += 32) {
      prim::store_shared(box + i * 4, static_cast<float>(1 << round));
    }
    prim::fence_proxy();
    __syncwarp();
    if (lane == 0) {
      if (round == 0) use_map(args.maps);
      prim::add_box(args.maps, box, at.column, at.row, at.plane);
      prim::commit_stores();
      prim::wait_for_stores<0>();
    }
    __syncwarp();
  }
}

__global__ void store_fragment(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x;
  std::uint32_t fragment[4];
  for (std::uint32_t i = 0; i < 4; ++i) fragment[i] = prim::load_global(args.in + lane * 4 + i);
  prim::store_matrices(base + lane * 16, fragment);
  __syncwarp();
  for (std::uint32_t i = 0; i < 4; ++i) {
    prim::store_global(args.out + i * 32 + lane, prim::load_shared<std::uint32_t>(base + (i * 32 + lane) * 4));
  }
}

__global__ void hand_over_by_phases(const __grid_constant__ Arguments args) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), filled = base + 128, emptied = filled + 8;
  const std::uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prim::init_barrier(filled, 32);
    prim::init_barrier(emptied, 1);
    prim::publish_barriers();
  }
  __syncthreads();
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (threadIdx.x < 32) {
      prim::wait_for_phase(emptied, (i & 1u) ^ 1u);
      prim::store_shared(base + lane * 4, prim::load_global(args.in + i * 32 + lane));
      prim::arrive(filled);
    } else {
      prim::wait_for_phase(filled, i & 1u);
      prim::store_global(args.out + i * 32 + (lane ^ 5u), prim::load_shared<std::uint32_t>(base + (lane ^ 5u) * 4));
      __syncwarp();
      if (lane == 0) prim::arrive(emptied);
    }
  }
}

__global__ void __launch_bounds__(384, 1) move_registers(const __grid_constant__ Arguments args) {
  if (cuda::warpgroup() == 2) {
    prim::fewer_registers<24>();
  } else {
    prim::more_registers<240>();
  }
  prim::store_global(args.out + threadIdx.x, prim::load_global(args.in + threadIdx.x));
}

/// The tile of an operand with `others` rows or columns.
template <bool by_columns, int others, int depth>
using OperandTile = PanelTile<by_columns ? depth : others, by_columns ? others : depth>;

template <class Element, int columns, int depth, Left left, bool right_by_columns>
struct ProductShape {
  static constexpr bool left_by_columns = left == Left::depth_along_columns;
  using LeftTile = OperandTile<left_by_columns, 64, depth>;
  using RightTile = OperandTile<right_by_columns, columns, depth>;
  static constexpr int shared_bytes = LeftTile::bytes + RightTile::bytes + 8;

  template <class Tile>
  static TensorShape tensor() {
    return {Tile::width, Tile::rows, 1, Tile::rows};
  }
};

/// Both operands of a product into shared memory, by one thread; a barrier behind them.
template <class Shape>
__device__ std::uint32_t load_operands(const Arguments& args, std::uint32_t memory) {
  using LeftTile = typename Shape::LeftTile;
  using RightTile = typename Shape::RightTile;
  const std::uint32_t right = memory + LeftTile::bytes, barrier = right + RightTile::bytes;
  if (threadIdx.x == 0) {
    use_map(args.maps);
    use_map(args.maps + 1);
    prim::init_barrier(barrier, 1);
    prim::publish_barriers();
    prim::arrive_expecting(barrier, LeftTile::bytes + RightTile::bytes);
    LeftTile::load(memory, args.maps, barrier, 0, 0);
    RightTile::load(right, args.maps + 1, barrier, 0, 0);
  }
  __syncthreads();
  prim::wait_for_phase(barrier, 0);
  return right;
}

template <int pieces>
__device__ void store_product(const float (&d)[pieces][4], std::uint32_t* out) {
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  DISTATTN_UNROLL
  for (std::uint32_t n = 0; n < pieces; ++n) {
    DISTATTN_UNROLL
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t row = warp * 16 + i / 2 * 8 + lane / 4, column = n * 8 + lane % 4 * 2 + i % 2;
      prim::store_global(reinterpret_cast<float*>(out) + row * pieces * 8 + column, d[n][i]);
    }
  }
}

template <class Element, int columns, int depth, Left left, bool right_by_columns>
__global__ void __launch_bounds__(128, 1) multiply_once(const __grid_constant__ Arguments args) {
  using Shape = ProductShape<Element, columns, depth, left, right_by_columns>;
  using LeftTile = typename Shape::LeftTile;
  using RightTile = typename Shape::RightTile;
  constexpr prim::Major right_major = right_by_columns ? prim::Major::other : prim::Major::depth;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t left_tile = prim::shared_address(memory), right_tile = load_operands<Shape>(args, left_tile);
  const std::uint64_t r =
      right_by_columns ? RightTile::by_columns(right_tile, 0, 0) : RightTile::by_rows(right_tile, 0, 0);
  const auto right_step = [](int k) { return right_by_columns ? RightTile::step(k, 0) : RightTile::step(0, k); };
  float d[columns / 8][4];
  DISTATTN_UNROLL
  for (auto& piece : d) piece[0] = piece[1] = piece[2] = piece[3] = 1.0f;  // the first product overwrites it
  if constexpr (left == Left::registers) {
    std::uint32_t a[depth / 16][4];
    const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    DISTATTN_UNROLL
    for (std::uint32_t k = 0; k < depth / 16; ++k) {
      DISTATTN_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t row = warp * 16 + i % 2 * 8 + lane / 4, column = k * 16 + i / 2 * 8 + lane % 4 * 2;
        a[k][i] = prim::load_global(args.in + (row * depth + column) / 2);
      }
    }
    prim::fence_products(d, a);
    DISTATTN_UNROLL
    for (int k = 0; k < depth; k += 16) prim::multiply<Element, right_major>(d, a[k / 16], r + right_step(k), k > 0);
    prim::commit_products();
    prim::wait_for_products<0>(d, a);  // the products read a until here
  } else {
    constexpr bool by_columns = Shape::left_by_columns;
    constexpr prim::Major left_major = by_columns ? prim::Major::other : prim::Major::depth;
    const std::uint64_t l = by_columns ? LeftTile::by_columns(left_tile, 0, 0) : LeftTile::by_rows(left_tile, 0, 0);
    const auto left_step = [](int k) { return by_columns ? LeftTile::step(k, 0) : LeftTile::step(0, k); };
    prim::fence_products(d);
    DISTATTN_UNROLL
    for (int k = 0; k < depth; k += 16) {
      prim::multiply<Element, left_major, right_major>(d, l + left_step(k), r + right_step(k), k > 0);
    }
    prim::commit_products();
    prim::wait_for_products<0>(d);
  }
  store_product(d, args.out);
}

template <class Shape>
int start_product(void (*kernel)(Arguments), const Arguments& args, Stream stream) {
  using LeftTile = typename Shape::LeftTile;
  using RightTile = typename Shape::RightTile;
  const auto* const left = reinterpret_cast<const Bf16*>(args.in);
  int status = prim::describe_tensor(args.maps[0], left, Shape::template tensor<LeftTile>());
  if (status != 0) return status;
  status =
      prim::describe_tensor(args.maps[1], left + LeftTile::rows * LeftTile::width, Shape::template tensor<RightTile>());
  return status != 0 ? status : prim::launch(kernel, {1, 128, Shape::shared_bytes}, stream, args);
}

template <class Element, int columns, int depth, Left left, bool right_by_columns>
constexpr Product product() {
  return {
      columns, depth, left, right_by_columns, std::is_same_v<Element, Bf16>, [](const Arguments& args, Stream stream) {
        return start_product<ProductShape<Element, columns, depth, left, right_by_columns>>(
            multiply_once<Element, columns, depth, left, right_by_columns>, args, stream);
      }};
}

using GroupsShape = ProductShape<Bf16, 64, 64, Left::depth_along_rows, false>;

__global__ void __launch_bounds__(128, 1) multiply_in_groups(const __grid_constant__ Arguments args) {
  using Tile = GroupsShape::LeftTile;
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t left = prim::shared_address(memory), right = load_operands<GroupsShape>(args, left);
  const std::uint64_t l = Tile::by_rows(left, 0, 0), r = Tile::by_rows(right, 0, 0);
  float first[8][4] = {}, second[8][4] = {};
  DISTATTN_NO_UNROLL
  for (int round = 0; round < 2; ++round) {
    prim::fence_products(first, second);
    DISTATTN_UNROLL
    for (int k = 0; k < 64; k += 16) prim::multiply<Bf16>(first, l + Tile::step(0, k), r + Tile::step(0, k), true);
    prim::commit_products();
    DISTATTN_UNROLL
    for (int k = 0; k < 64; k += 16) prim::multiply<Bf16>(second, l + Tile::step(0, k), r + Tile::step(0, k), true);
    prim::commit_products();
    prim::wait_for_products<1>(first);
    DISTATTN_UNROLL
    for (auto& piece : first) {
      DISTATTN_UNROLL
      for (int i = 0; i < 4; ++i) piece[i] *= 2;
    }
    prim::wait_for_products<0>(second);
  }
  store_product(first, args.out);
  store_product(second, args.out + 64 * 64);
}

}  // namespace

int load_box_bf16(const Arguments& args, Stream stream) { return start_load<Bf16>(args, stream); }
int load_box_fp32(const Arguments& args, Stream stream) { return start_load<float>(args, stream); }
int add_box(const Arguments& args, Stream stream) {
  const int status = prim::describe_tensor(args.maps[0], reinterpret_cast<const float*>(args.out),
                                           {tensor_columns, tensor_rows, tensor_planes, copied_box_rows});
  return status != 0 ? status : prim::launch(add_boxes, {1, 64, 2 * box_bytes}, stream, args);
}
int store_matrices(const Arguments& args, Stream stream) {
  return prim::launch(store_fragment, {1, 32, 512}, stream, args);
}
int arrivals(const Arguments& args, Stream stream) {
  return prim::launch(hand_over_by_phases, {1, 64, 128 + 16}, stream, args);
}
int registers(const Arguments& args, Stream stream) { return prim::launch(move_registers, {1, 384, 0}, stream, args); }

std::span<const Product> products() {
  using enum Left;
  static constexpr Product all[] = {
      product<Bf16, 48, 256, depth_along_rows, false>(),   product<Bf16, 64, 64, depth_along_rows, false>(),
      product<Bf16, 80, 192, depth_along_rows, false>(),   product<Bf16, 96, 128, depth_along_rows, false>(),
      product<Bf16, 112, 128, depth_along_rows, false>(),  product<Bf16, 128, 96, depth_along_rows, false>(),
      product<Fp16, 128, 64, depth_along_rows, false>(),   product<Bf16, 144, 128, depth_along_rows, false>(),
      product<Bf16, 160, 64, depth_along_rows, false>(),   product<Bf16, 176, 128, depth_along_rows, false>(),
      product<Bf16, 192, 64, depth_along_rows, false>(),   product<Bf16, 64, 128, registers, true>(),
      product<Bf16, 128, 96, registers, true>(),           product<Bf16, 192, 80, registers, true>(),
      product<Bf16, 256, 48, registers, true>(),           product<Fp16, 256, 64, registers, true>(),
      product<Bf16, 80, 256, depth_along_rows, false>(),   product<Bf16, 256, 80, registers, true>(),
      product<Bf16, 64, 128, depth_along_columns, true>(), product<Bf16, 128, 64, depth_along_columns, true>()};
  return all;
}

int product_groups(const Arguments& args, Stream stream) {
  return start_product<GroupsShape>(multiply_in_groups, args, stream);
}

}  // namespace simt::primitive
