#pragma once
/// A kernel for each primitive of kernels/cuda/hopper/primitives.cuh.

#include <span>

#include "simt/primitive_kernels.hpp"

namespace simt::primitive {

/// A tensor of bf16 or fp32 as copies of boxes know it: `in` is three coordinates of a box, column, row and plane, and
/// then the tensor. Boxes have 16 rows.
inline constexpr int tensor_columns = 72, tensor_rows = 11, tensor_planes = 2, copied_box_rows = 16;

/// One block: out = the box, word by word as it lies in shared memory.
int load_box_bf16(const Arguments& args, Stream stream);
int load_box_fp32(const Arguments& args, Stream stream);
/// Two warps, each three times: adds 1, 2 and 4 to the box of an fp32 tensor that begins at out.
int add_box(const Arguments& args, Stream stream);
/// One warp, in: four words a lane; out: the four matrices of 8 rows of 8 16-bit elements that they are.
int store_matrices(const Arguments& args, Stream stream);
/// Warp 0 hands four times 32 words of `in` to warp 1, which writes them to `out`.
int arrivals(const Arguments& args, Stream stream);
/// Three warpgroups, of which one gives registers to the others: copies 384 words.
int registers(const Arguments& args, Stream stream);

/// Where the left operand of a product comes from: registers, or shared memory with its depth along rows or columns.
enum class Left : std::uint8_t { registers, depth_along_rows, depth_along_columns };

/// One warpgroup: out = a·b in fp32, 64 × columns. in: a as [64][depth] or, where its depth runs along columns of a
/// tile, [depth][64]; then b as [columns][depth] or [depth][columns] likewise. 16-bit elements, two a word.
struct Product {
  int columns, depth;
  Left left;
  bool right_by_columns;  ///< [depth][columns]
  bool bf16;              ///< else fp16
  Kernel* kernel;
};
/// Of every kind and width that the kernels of kernels/cuda use.
std::span<const Product> products();
/// Two groups of products of the same operands, as for a Product of 64 columns and depth 64 in bf16 whose operands both
/// have their depth along rows: twice, and the first group's sums are doubled before the second has been waited for.
int product_groups(const Arguments& args, Stream stream);

}  // namespace simt::primitive
