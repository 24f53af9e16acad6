#pragma once
/// kernels/cuda/hopper/primitives.cuh for a host compiler. Layouts after the PTX ISA: "Matrix fragments for
/// wgmma.mma_async.m64nNk16", "stmatrix", "Strides" and "Swizzling modes" of matrix descriptors, "Tensors" of bulk
/// copies.

#include <array>
#include <vector>

#include "simt/primitives.hpp"

namespace distattn::kernels::cuda::prim {
namespace emulated {

/// What the emulator keeps in a TensorMap.
struct TensorDescription {
  const std::byte* base;
  std::uint64_t columns, rows, planes;
  std::uint32_t element_bytes, box_rows;

  std::uint32_t box_bytes() const { return box_rows * box_row_bytes; }
  /// Where a 16-byte chunk of a box lies; null outside the tensor.
  const std::byte* chunk(int column, int row, int plane, std::uint32_t box_row, std::uint32_t box_chunk) const {
    const std::int64_t c = column + std::int64_t{box_chunk} * (16 / element_bytes), r = row + std::int64_t{box_row};
    const auto within = [](std::int64_t x, std::uint64_t size) {
      return x >= 0 && static_cast<std::uint64_t>(x) < size;
    };
    if (!within(c, columns) || !within(r, rows) || !within(plane, planes)) return nullptr;
    const std::uint64_t at = (static_cast<std::uint64_t>(plane) * rows + static_cast<std::uint64_t>(r)) * columns;
    return base + (at + static_cast<std::uint64_t>(c)) * element_bytes;
  }
};
static_assert(sizeof(TensorDescription) <= sizeof(TensorMap));

inline TensorDescription description_of(const TensorMap* map) {
  simt::machine().on_global(map, alignof(TensorMap), simt::Access::read, "a tensor map");
  TensorDescription description;
  std::memcpy(&description, map->bytes, sizeof description);
  if (description.base == nullptr) simt::machine().fail("a tensor map that nobody has filled");
  return description;
}

/// For a copy by the current thread: whether the copy engine sees what the host has written is a matter of each.
inline TensorDescription acquired(const TensorMap* map) {
  if (!simt::machine().thread().acquired_maps.contains(map)) simt::machine().fail("a tensor map is not acquired");
  return description_of(map);
}

/// 128-byte swizzling: bits 4–6 of an address are permuted by bits 7–9.
inline std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 3 & 0x70u); }

inline std::uint32_t offset_of(std::uint32_t address) { return address - simt::shared_base; }

/// Pairs of a box's chunks: in shared memory, and in global memory or null.
struct ChunkCopy {
  std::byte* shared;
  const std::byte* global;
};
inline std::vector<ChunkCopy> chunks_of_box(const TensorDescription& tensor, std::uint32_t address, int column, int row,
                                            int plane, simt::Access access, const char* what) {
  simt::machine().shared(address, tensor.box_bytes(), 128, what);
  std::vector<ChunkCopy> chunks;
  for (std::uint32_t r = 0; r < tensor.box_rows; ++r) {
    for (std::uint32_t c = 0; c < box_row_bytes / 16; ++c) {
      const std::byte* const global = tensor.chunk(column, row, plane, r, c);
      if (global != nullptr) simt::machine().on_global(global, 16, access, what);
      chunks.push_back({simt::machine().shared(swizzled(address + r * box_row_bytes + c * 16), 16, 16, what), global});
    }
  }
  return chunks;
}

/// An operand in shared memory, as a matrix descriptor says.
struct Operand {
  std::uint32_t start, leading, stride;
  Major major;

  Operand(std::uint64_t descriptor, Major which)
      : start(static_cast<std::uint32_t>(descriptor & 0x3fffu) << 4),
        leading(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fffu) << 4),
        stride(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fffu) << 4),
        major(which) {
    if (descriptor >> 62 != 1) simt::machine().fail("wgmma: only 128-byte swizzling is emulated");
    if ((descriptor >> 49 & 7u) != 0 || (start & 0x380u) != 0) {
      simt::machine().fail("wgmma: an operand starts within a pattern of eight rows");
    }
  }
  /// Of element (other, depth): a row of a or a column of b, and its place along the sum.
  std::uint32_t address(std::uint32_t other, std::uint32_t depth) const {
    if (major == Major::depth) return swizzled(start + other / 8 * stride + other % 8 * 128 + depth * 2);
    return swizzled(start + other / 64 * leading + depth / 8 * stride + depth % 8 * 128 + other % 64 * 2);
  }
  /// Everything that a product reads, in pieces of eight elements that lie together: put(byte address, other, depth).
  template <class Put>
  void for_each_piece(std::uint32_t first, std::uint32_t count, Put put) const {
    for (std::uint32_t i = 0; i < count * 2; ++i) {
      const bool by_depth = major == Major::depth;
      const std::uint32_t other = first + (by_depth ? i / 2 : i / 16 * 8), depth = by_depth ? i % 2 * 8 : i % 16;
      put(address(other, depth), other, depth);
    }
  }
  void list_reads(std::uint32_t first, std::uint32_t count, std::vector<simt::SharedRange>& reads) const {
    for_each_piece(first, count, [&](std::uint32_t at, std::uint32_t, std::uint32_t) {
      simt::machine().shared(at, 16, 16, "wgmma operand");
      reads.push_back({offset_of(at), 16});
    });
  }
  /// put(other, depth, element)
  template <class Element, class Put>
  void for_each_element(std::uint32_t first, std::uint32_t count, Put put) const {
    const std::uint32_t next_other = major == Major::depth ? 0 : 1;
    for_each_piece(first, count, [&](std::uint32_t at, std::uint32_t other, std::uint32_t depth) {
      Element piece[8];
      std::memcpy(piece, simt::machine().shared(at, sizeof piece, sizeof piece, "wgmma operand"), sizeof piece);
      for (std::uint32_t i = 0; i < 8; ++i)
        put(other + i * next_other, depth + i * (1 - next_other), to_float(piece[i]));
    });
  }
};

/// What one lane brings to a product. a: registers, or null and a descriptor.
struct ProductLane {
  float (*d)[4];
  const std::uint32_t* a;
  std::uint64_t left, right;
  bool add;
};

/// A warp's 16 rows of the 64 of a product: nothing but barriers ties the warps of a warpgroup.
template <class Element, int columns>
void multiply_now(const std::array<ProductLane, 32>& lanes, std::uint32_t first_row, Major left, Major right) {
  float a[16][16], b[16][columns], d[16][columns];
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (std::uint32_t i = 0; lanes[lane].a != nullptr && i < 4; ++i) {
      a[group + i % 2 * 8][pair + i / 2 * 8] = low_of<Element>(lanes[lane].a[i]);
      a[group + i % 2 * 8][pair + i / 2 * 8 + 1] = high_of<Element>(lanes[lane].a[i]);
    }
    for (std::uint32_t i = 0; i < columns / 2; ++i) {
      d[group + i / 2 % 2 * 8][i / 4 * 8 + pair + i % 2] = lanes[lane].add ? lanes[lane].d[i / 4][i % 4] : 0.0f;
    }
  }
  if (lanes[0].a == nullptr) {
    Operand(lanes[0].left, left).for_each_element<Element>(first_row, 16, [&](auto row, auto k, float value) {
      a[row - first_row][k] = value;
    });
  }
  Operand(lanes[0].right, right).for_each_element<Element>(0, columns, [&](auto n, auto k, float value) {
    b[k][n] = value;
  });
  simt::add_products(d[0], a, b[0], columns);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t i = 0; i < columns / 2; ++i) {
      lanes[lane].d[i / 4][i % 4] = d[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
    }
  }
}

template <class Element, int columns>
void start_product(ProductLane mine, Major left, Major right) {
  const char* const name = mine.a != nullptr ? "wgmma of registers" : "wgmma";
  simt::machine().collective(name, simt::all_lanes, &mine, [left, right](void** arguments) {
    simt::Machine& machine = simt::machine();
    std::array<ProductLane, 32> lanes;
    for (std::size_t lane = 0; lane < 32; ++lane) {
      lanes[lane] = *static_cast<ProductLane*>(arguments[lane]);
      if (lanes[lane].left != lanes[0].left || lanes[lane].right != lanes[0].right || lanes[lane].add != lanes[0].add) {
        machine.fail("wgmma: lanes disagree on an operand");
      }
    }
    const std::uint32_t first_row = machine.thread().warp % 4 * 16;
    std::vector<simt::SharedRange> reads;
    if (lanes[0].a == nullptr) Operand(lanes[0].left, left).list_reads(first_row, 16, reads);
    Operand(lanes[0].right, right).list_reads(0, columns, reads);
    machine.checked([&] {
      machine.async().start_product(std::move(reads), [lanes, first_row, left, right] {
        multiply_now<Element, columns>(lanes, first_row, left, right);
      });
    });
  });
}

}  // namespace emulated

template <class Element>
int describe_tensor(TensorMap& map, const Element* base, const TensorShape& shape) {
  constexpr int invalid_value = 1;
  const emulated::TensorDescription description{reinterpret_cast<const std::byte*>(base),
                                                static_cast<std::uint64_t>(shape.columns),
                                                static_cast<std::uint64_t>(shape.rows),
                                                static_cast<std::uint64_t>(shape.planes),
                                                sizeof(Element),
                                                static_cast<std::uint32_t>(shape.box_rows)};
  const bool aligned = reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && shape.columns * sizeof(Element) % 16 == 0;
  const bool sized = shape.columns > 0 && shape.rows > 0 && shape.planes > 0;
  if (base == nullptr || !aligned || !sized || shape.box_rows < 1 || shape.box_rows > 256) return invalid_value;
  std::memcpy(map.bytes, &description, sizeof description);
  return 0;
}

inline void acquire_tensor_map(const TensorMap* map) {
  emulated::description_of(map);
  simt::machine().thread().acquired_maps.insert(map);
}

inline void init_barrier(std::uint32_t barrier, unsigned arrivals) {
  simt::machine().shared(barrier, 8, 8, "mbarrier.init");
  simt::machine().checked([&] { simt::machine().async().init_barrier(emulated::offset_of(barrier), arrivals); });
}
inline void publish_barriers() { simt::machine().async().publish_barriers(); }
inline void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  simt::machine().checked([&] { simt::machine().async().arrive(emulated::offset_of(barrier), bytes); });
}
inline void arrive(std::uint32_t barrier) { arrive_expecting(barrier, 0); }
inline void wait_for_phase(std::uint32_t barrier, unsigned parity) {
  simt::machine().checked([&] { simt::machine().async().wait_for_phase(emulated::offset_of(barrier), parity); });
}

inline void load_box(std::uint32_t into, const TensorMap* map, std::uint32_t barrier, int column, int row, int plane) {
  const emulated::TensorDescription tensor = emulated::acquired(map);
  auto chunks = emulated::chunks_of_box(tensor, into, column, row, plane, simt::Access::read, "cp.async.bulk.tensor");
  simt::machine().checked([&] {
    simt::machine().async().start_load(emulated::offset_of(barrier), {emulated::offset_of(into), tensor.box_bytes()},
                                       [chunks = std::move(chunks)] {
                                         constexpr std::byte zeros[16] = {};
                                         for (const auto& [shared, global] : chunks) {
                                           std::memcpy(shared, global != nullptr ? global : zeros, 16);
                                         }
                                       });
  });
}
inline void add_box(const TensorMap* map, std::uint32_t from, int column, int row, int plane) {
  const emulated::TensorDescription tensor = emulated::acquired(map);
  if (tensor.element_bytes != sizeof(float)) simt::machine().fail("cp.reduce.async.bulk.tensor: only fp32 is emulated");
  auto chunks =
      emulated::chunks_of_box(tensor, from, column, row, plane, simt::Access::atomic, "cp.reduce.async.bulk.tensor");
  simt::machine().checked([&] {
    simt::machine().async().start_store({emulated::offset_of(from), tensor.box_bytes()}, [chunks = std::move(chunks)] {
      for (const auto& [shared, global] : chunks) {
        if (global == nullptr) continue;
        float values[4];
        std::memcpy(values, shared, sizeof values);
        auto* const into = reinterpret_cast<float*>(const_cast<std::byte*>(global));
        for (int i = 0; i < 4; ++i) into[i] += values[i];
      }
    });
  });
}
inline void commit_stores() { simt::machine().async().commit_stores(); }
template <int groups>
void wait_for_stores() {
  simt::machine().async().wait_for_stores(groups);
}
inline void store_matrices(std::uint32_t row_address, const std::uint32_t (&fragment)[4]) {
  struct Lane {
    std::uint32_t row_address;
    const std::uint32_t* fragment;
  } mine{row_address, fragment};
  simt::machine().on_shared_write(row_address, 16, "stmatrix");
  simt::machine().collective("stmatrix", simt::all_lanes, &mine, [](void** lanes) {
    for (int m = 0; m < 4; ++m) {
      std::uint32_t rows[8];
      for (int r = 0; r < 8; ++r) {
        rows[r] = static_cast<Lane*>(lanes[8 * m + r])->row_address;
        std::byte* const row = simt::machine().shared(rows[r], 16, 16, "stmatrix");
        for (int i = 0; i < 4; ++i) std::memcpy(row + 4 * i, &static_cast<Lane*>(lanes[4 * r + i])->fragment[m], 4);
      }
      simt::machine().count_bank_conflicts(emulated::bank_conflicts(rows));
    }
  });
}
inline void fence_proxy() { simt::machine().async().fence_proxy(); }

template <class... Registers>
void fence_products(Registers&...) {
  simt::machine().collective("wgmma.fence", simt::all_lanes, nullptr,
                             [](void**) { simt::machine().async().fence_products(); });
}
inline void commit_products() {
  simt::machine().collective("wgmma.commit_group", simt::all_lanes, nullptr,
                             [](void**) { simt::machine().async().commit_products(); });
}
template <int groups, class... Registers>
void wait_for_products(Registers&...) {
  simt::machine().collective("wgmma.wait_group", simt::all_lanes, nullptr,
                             [](void**) { simt::machine().async().wait_for_products(groups); });
}

inline void keep_before_wait(float value) {
  if (value < 0) simt::machine().fail("a value below 0 is kept before a wait");
}

template <class Element, Major left = Major::depth, Major right = Major::depth, int pieces>
void multiply(float (&d)[pieces][4], std::uint64_t l, std::uint64_t r, bool add) {
  emulated::start_product<Element, pieces * 8>({d, nullptr, l, r, add}, left, right);
}
template <class Element, Major right = Major::depth, int pieces>
void multiply(float (&d)[pieces][4], const std::uint32_t (&l)[4], std::uint64_t r, bool add) {
  emulated::start_product<Element, pieces * 8>({d, l, 0, r, add}, Major::depth, right);
}

template <int registers>
void set_registers(bool more) {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
  simt::machine().collective("setmaxnreg", simt::all_lanes, nullptr, [more](void**) {
    simt::machine().checked([&] { simt::machine().async().set_registers(registers, more); });
  });
}
template <int registers>
void more_registers() {
  set_registers<registers>(true);
}
template <int registers>
void fewer_registers() {
  set_registers<registers>(false);
}

}  // namespace distattn::kernels::cuda::prim
