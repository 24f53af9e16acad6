#pragma once
/// hopper_primitives.cuh on the device: sm_90a.

#include <cuda.h>

#include "kernels/cuda/primitives_ptx.cuh"

namespace distattn::kernels::cuda::prim {

template <class Element>
inline constexpr CUtensorMapDataType tensor_type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
template <>
inline constexpr CUtensorMapDataType tensor_type<Bf16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <>
inline constexpr CUtensorMapDataType tensor_type<Fp16> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;

/// The driver's cuTensorMapEncodeTiled; null with a status where there is none.
inline cudaError_t find_tensor_map_encoder(decltype(&cuTensorMapEncodeTiled)& encode) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  encode = reinterpret_cast<decltype(encode)>(found);
  if (status != cudaSuccess) return status;
  return found != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
}

template <class Element>
int describe_tensor(TensorMap& map, const Element* base, const TensorShape& shape) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  static const cudaError_t found = find_tensor_map_encoder(encode);
  if (found != cudaSuccess) return found;
  const auto columns = static_cast<cuuint64_t>(shape.columns), rows = static_cast<cuuint64_t>(shape.rows);
  const cuuint64_t dims[] = {columns, rows, static_cast<cuuint64_t>(shape.planes)};
  const cuuint64_t strides[] = {columns * sizeof(Element), columns * rows * sizeof(Element)};
  const cuuint32_t box[] = {box_row_bytes / sizeof(Element), static_cast<cuuint32_t>(shape.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(&map), tensor_type<Element>, 3, const_cast<Element*>(base), dims, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

__device__ __forceinline__ void acquire_tensor_map(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool phase_completed(std::uint32_t barrier, unsigned parity) {
  std::uint32_t completed;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(completed)
               : "r"(barrier), "r"(parity)
               : "memory");
  return completed != 0;
}
__device__ __forceinline__ void wait_for_phase(std::uint32_t barrier, unsigned parity) {
  while (!phase_completed(barrier, parity)) {
  }
}

__device__ __forceinline__ void load_box(std::uint32_t into, const TensorMap* map, std::uint32_t barrier, int column,
                                         int row, int plane) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(into),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(plane)
      : "memory");
}
__device__ __forceinline__ void add_box(const TensorMap* map, std::uint32_t from, int column, int row, int plane) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from), "r"(column), "r"(row), "r"(plane)
      : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int groups>
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
__device__ __forceinline__ void store_matrices(std::uint32_t row_address, const std::uint32_t (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(fragment[0]),
               "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}
__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// The compiler does not know that products write registers after the instruction that starts them: what uses these
/// stays behind this place, what changed them before it.
template <int pieces>
__device__ __forceinline__ void pin(float (&d)[pieces][4]) {
  DISTATTN_UNROLL
  for (int n = 0; n < pieces; ++n) {
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
  }
}
template <int pieces>
__device__ __forceinline__ void pin(std::uint32_t (&a)[pieces][4]) {
  DISTATTN_UNROLL
  for (int k = 0; k < pieces; ++k) {
    asm volatile("" : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]), "+r"(a[k][3])::"memory");
  }
}

template <class... Registers>
__device__ __forceinline__ void fence_products(Registers&... registers) {
  (pin(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int groups, class... Registers>
__device__ __forceinline__ void wait_for_products(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
  (pin(registers), ...);
}

/// ptxas moves waits ahead of arithmetic that they do not concern, but not ahead of a store: here of one that depends
/// on the value, and never happens.
__device__ __forceinline__ void keep_before_wait(float value) {
  asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;\n}" ::"f"(value), "r"(0)
               : "memory");
}

template <int registers>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

#define DISTATTN_PIECE(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define DISTATTN_PIECES_2(n) DISTATTN_PIECE(n), DISTATTN_PIECE(n + 1)
#define DISTATTN_PIECES_4(n) DISTATTN_PIECES_2(n), DISTATTN_PIECES_2(n + 2)
#define DISTATTN_PIECES_8(n) DISTATTN_PIECES_4(n), DISTATTN_PIECES_4(n + 4)

/// The wgmma of one element type and width.
template <class Element, int pieces>
struct Wgmma;

// P0 … P6: the numbers of the operands behind the accumulators.
#define DISTATTN_WGMMA(ELEMENT, TYPE, PIECES, WIDTH, REGISTERS, P0, P1, P2, P3, P4, P5, P6)                         \
  template <>                                                                                                       \
  struct Wgmma<ELEMENT, PIECES> {                                                                                   \
    template <int left, int right>                                                                                  \
    __device__ static __forceinline__ void run(float (&d)[PIECES][4], std::uint64_t l, std::uint64_t r, int add) {  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2                                                         \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16.f32." TYPE "." TYPE " {" REGISTERS "}, %" #P0    \
                   ", %" #P1 ", p, 1, 1, %" #P3 ", %" #P4 ";\n}"                                                    \
                   : DISTATTN_OPERANDS_##PIECES                                                                     \
                   : "l"(l), "l"(r), "r"(add), "n"(left), "n"(right));                                              \
    }                                                                                                               \
    template <int right>                                                                                            \
    __device__ static __forceinline__ void run(float (&d)[PIECES][4], const std::uint32_t (&l)[4], std::uint64_t r, \
                                               int add) {                                                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5                                                         \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16.f32." TYPE "." TYPE " {" REGISTERS "}, {%" #P0   \
                   ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", p, 1, 1, %" #P6 ";\n}"                               \
                   : DISTATTN_OPERANDS_##PIECES                                                                     \
                   : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "l"(r), "r"(add), "n"(right));                     \
    }                                                                                                               \
  };
#define DISTATTN_WGMMA_16_BIT(...)          \
  DISTATTN_WGMMA(Bf16, "bf16", __VA_ARGS__) \
  DISTATTN_WGMMA(Fp16, "f16", __VA_ARGS__)

#define DISTATTN_OPERANDS_6 DISTATTN_PIECES_4(0), DISTATTN_PIECES_2(4)
#define DISTATTN_OPERANDS_8 DISTATTN_PIECES_8(0)
#define DISTATTN_OPERANDS_10 DISTATTN_OPERANDS_8, DISTATTN_PIECES_2(8)
#define DISTATTN_OPERANDS_12 DISTATTN_OPERANDS_8, DISTATTN_PIECES_4(8)
#define DISTATTN_OPERANDS_14 DISTATTN_OPERANDS_12, DISTATTN_PIECES_2(12)
#define DISTATTN_OPERANDS_16 DISTATTN_OPERANDS_8, DISTATTN_PIECES_8(8)
#define DISTATTN_OPERANDS_18 DISTATTN_OPERANDS_16, DISTATTN_PIECES_2(16)
#define DISTATTN_OPERANDS_20 DISTATTN_OPERANDS_16, DISTATTN_PIECES_4(16)
#define DISTATTN_OPERANDS_22 DISTATTN_OPERANDS_20, DISTATTN_PIECES_2(20)
#define DISTATTN_OPERANDS_24 DISTATTN_OPERANDS_16, DISTATTN_PIECES_8(16)
#define DISTATTN_OPERANDS_32 DISTATTN_OPERANDS_24, DISTATTN_PIECES_8(24)

#define DISTATTN_REGISTERS_24 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"
#define DISTATTN_REGISTERS_32 DISTATTN_REGISTERS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define DISTATTN_REGISTERS_40 DISTATTN_REGISTERS_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define DISTATTN_REGISTERS_48 DISTATTN_REGISTERS_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define DISTATTN_REGISTERS_56 DISTATTN_REGISTERS_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define DISTATTN_REGISTERS_64 DISTATTN_REGISTERS_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define DISTATTN_REGISTERS_72 DISTATTN_REGISTERS_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define DISTATTN_REGISTERS_80 DISTATTN_REGISTERS_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define DISTATTN_REGISTERS_88 DISTATTN_REGISTERS_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define DISTATTN_REGISTERS_96 DISTATTN_REGISTERS_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define DISTATTN_REGISTERS_128                                                                                   \
  DISTATTN_REGISTERS_96                                                                                          \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%" \
  "118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

DISTATTN_WGMMA_16_BIT(6, 48, DISTATTN_REGISTERS_24, 24, 25, 26, 27, 28, 29, 30)
DISTATTN_WGMMA_16_BIT(8, 64, DISTATTN_REGISTERS_32, 32, 33, 34, 35, 36, 37, 38)
DISTATTN_WGMMA_16_BIT(10, 80, DISTATTN_REGISTERS_40, 40, 41, 42, 43, 44, 45, 46)
DISTATTN_WGMMA_16_BIT(12, 96, DISTATTN_REGISTERS_48, 48, 49, 50, 51, 52, 53, 54)
DISTATTN_WGMMA_16_BIT(14, 112, DISTATTN_REGISTERS_56, 56, 57, 58, 59, 60, 61, 62)
DISTATTN_WGMMA_16_BIT(16, 128, DISTATTN_REGISTERS_64, 64, 65, 66, 67, 68, 69, 70)
DISTATTN_WGMMA_16_BIT(18, 144, DISTATTN_REGISTERS_72, 72, 73, 74, 75, 76, 77, 78)
DISTATTN_WGMMA_16_BIT(20, 160, DISTATTN_REGISTERS_80, 80, 81, 82, 83, 84, 85, 86)
DISTATTN_WGMMA_16_BIT(22, 176, DISTATTN_REGISTERS_88, 88, 89, 90, 91, 92, 93, 94)
DISTATTN_WGMMA_16_BIT(24, 192, DISTATTN_REGISTERS_96, 96, 97, 98, 99, 100, 101, 102)
DISTATTN_WGMMA_16_BIT(32, 256, DISTATTN_REGISTERS_128, 128, 129, 130, 131, 132, 133, 134)

template <class Element, Major left = Major::depth, Major right = Major::depth, int pieces>
__device__ __forceinline__ void multiply(float (&d)[pieces][4], std::uint64_t l, std::uint64_t r, bool add) {
  Wgmma<Element, pieces>::template run<static_cast<int>(left), static_cast<int>(right)>(d, l, r, add);
}
template <class Element, Major right = Major::depth, int pieces>
__device__ __forceinline__ void multiply(float (&d)[pieces][4], const std::uint32_t (&l)[4], std::uint64_t r,
                                         bool add) {
  Wgmma<Element, pieces>::template run<static_cast<int>(right)>(d, l, r, add);
}

}  // namespace distattn::kernels::cuda::prim
