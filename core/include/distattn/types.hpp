#pragma once
/// Ids, element types and enumerations used throughout the library.

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Marks small functions that device code calls too; nothing outside the compilers of CUDA and HIP.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define DISTATTN_HOST_DEVICE __host__ __device__
#else
#define DISTATTN_HOST_DEVICE
#endif
/// Defined while such a compiler makes code of devices.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define DISTATTN_DEVICE_CODE
#endif

#pragma GCC visibility push(default)
namespace distattn {

/// Position of a process or thread in the group that shares one attention, 0 … ranks-1.
using Rank = int;

/// Strong indices: each counts one kind of thing, with no implicit conversion.
enum class SegmentId : std::int32_t {};  ///< into Sharding::queries or Sharding::keys
enum class BufferId : std::int32_t {};   ///< into RankProgram::buffers
enum class StepId : std::int32_t {};     ///< into RankProgram::steps

/// The plain index behind a strong id.
template <class Id>
requires std::is_enum_v<Id>
constexpr std::size_t index(Id id) { return static_cast<std::size_t>(id); }

/// Element type of a tensor. Sums are kept in accumulator_of(), never in 16 bits.
enum class DType : std::uint8_t { fp64, fp32, bf16, fp16 };

DISTATTN_HOST_DEVICE constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 8;
    case DType::fp32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
  }
  return 0;
}

/// Type of results, statistics and gradients for inputs of `dtype`: fp64 for fp64, otherwise fp32.
DISTATTN_HOST_DEVICE constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::fp64 ? DType::fp64 : DType::fp32;
}

/// "fp32", "bf16", …
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return "fp64";
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
  }
  return "?";
}

/// `other`: memory of a device that no transport reaches; what it exchanges goes through the host.
enum class MemorySpace : std::uint8_t { host, cuda, other };

/// Forward computes (o, lse); backward computes (dq, dk, dv).
enum class Pass : std::uint8_t { forward, backward };

/// The three concurrent lanes of a rank; steps of one lane run in order.
enum class Lane : std::uint8_t { compute, near, far };
inline constexpr std::size_t lane_count = 3;

/// How a table becomes programs.
///  overlapped: an exchange runs while the tiles of its step are computed;
///  serial:     the same program, but a step's tiles also wait for that step's exchange (an ablation);
///  gathered:   all inputs first, then all tiles, then all replies.
enum class Mode : std::uint8_t { overlapped, serial, gathered };

constexpr const char* name_of(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }
constexpr const char* name_of(Lane lane) {
  return lane == Lane::compute ? "compute" : lane == Lane::near ? "near" : "far";
}
constexpr const char* name_of(Mode mode) {
  return mode == Mode::overlapped ? "overlapped" : mode == Mode::serial ? "serial" : "gathered";
}

}  // namespace distattn
#pragma GCC visibility pop
