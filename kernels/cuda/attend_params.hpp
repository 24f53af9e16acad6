#pragma once
/// What the attention kernels take, and how the host makes it from the operations of one step.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arguments.hpp"
#include "kernels/cuda/tensor_map.hpp"
#include "kernels/cuda/work.hpp"

namespace distattn::kernels::cuda {

/// The query segment of one operation. Pointers into device memory, packed as kernels/arguments.hpp says.
struct QuerySegment {
  Run run;
  const void* q = nullptr;
  float* o = nullptr;    ///< forward only
  float* lse = nullptr;  ///< forward: written; backward: read
  std::uint16_t* lse_low = nullptr;
  const void* d_o = nullptr;  ///< backward only, as are the next two
  const float* delta = nullptr;
  float* dq = nullptr;
  bool carry = false;  ///< of (o, lse) or dq
};

/// A key segment. Operations of a backward step that share its gradients share this too.
struct KeySegment {
  Run run;
  const void* k = nullptr;
  const void* v = nullptr;
  float* dk = nullptr;  ///< backward only
  float* dv = nullptr;
  bool carry = false;  ///< of (dk, dv)
};

/// The segments' tensors for kernels that leave copying to the copy engine.
struct QueryMaps {
  TensorMap q;
  TensorMap d_o, dq;  ///< backward only
};
struct KeyMaps {
  TensorMap k, v;
};
/// Fills the maps of one launch, segment by segment; a CUDA status. Segments without tokens have no maps.
using DescribeTensors = int (*)(const TileShape& shape, std::span<const QuerySegment> queries,
                                std::span<QueryMaps> query_maps, std::span<const KeySegment> keys,
                                std::span<KeyMaps> key_maps);

/// Scores in the type that kernels compute them in (scores.cuh).
struct Fp32Scores {
  float scale = 0;

  Fp32Scores() = default;
  explicit Fp32Scores(const Scores& scores) : scale(static_cast<float>(scores.scale)) {}
};

/// What a call says of dropout, in device memory: kernels are recorded before they know it.
struct alignas(16) DropoutDraw {
  std::uint32_t key0 = 0, key1 = 0, offset = 0;

  DropoutDraw() = default;
  DropoutDraw(std::uint64_t seed, std::uint32_t offset_)
      : key0(static_cast<std::uint32_t>(seed)), key1(static_cast<std::uint32_t>(seed >> 32)), offset(offset_) {}
};

/// What scores have beside a scale, for kernels that know it (scores.cuh), and what becomes of weights.
struct ScoreTerms {
  float cap = 0, inverse_cap = 0;     ///< 0: none
  const float* slopes = nullptr;      ///< of biases, by query head; null: none
  float* largest = nullptr;           ///< max_logit, as in AttendArgs
  const DropoutDraw* draw = nullptr;  ///< null: nothing is dropped
  std::int32_t drop_below = 0;        ///< HeadDropout::limit
  float kept = 1;                     ///< what weights are multiplied by that are not dropped
  std::int32_t heads_of_all = 1;      ///< query heads of the whole problem
};

/// A kernel's only argument, passed by value. The arrays are in device memory.
struct AttendParams {
  const Block* blocks = nullptr;
  const Visit* visits = nullptr;
  const Cut* cuts = nullptr;
  const QuerySegment* queries = nullptr;
  const KeySegment* keys = nullptr;
  const QueryMaps* query_maps = nullptr;  ///< by segment, where the kernel describes its tensors
  const KeyMaps* key_maps = nullptr;
  const int* stop = nullptr;  ///< a block that starts after it is set does nothing; may be null
  std::int32_t block_count = 0;
  std::int32_t batch = 0;
  std::int32_t head_dim = 0, value_dim = 0;
  std::int32_t value_stride = 0;  ///< elements from a value to the next key's, and from its gradient to that one's
  std::int32_t part = 0;          ///< which columns of its results a launch computes (column_part.cuh)
  Fp32Scores scores;
  Heads heads;
  ScoreTerms terms;

  /// Whether the gradient of a value is added to the beginning of its key's.
  DISTATTN_HOST_DEVICE bool values_lie_in_keys(const KeySegment& key) const { return key.dv == key.dk; }
};

/// Which side the blocks of a launch own.
enum class Owner : std::uint8_t { queries, keys };

/// The arrays of one launch as bytes that may lie anywhere: uploaded once, used by every run of a step.
class AttendPlan {
 public:
  /// The operations must agree in their TileShape and max_logit. Error(environment) if `describe` cannot.
  AttendPlan(std::span<const AttendArgs> operations, TileSize tile, DescribeTensors describe = nullptr);
  AttendPlan(std::span<const AttendBackwardArgs> operations, Owner owner, TileSize tile,
             DescribeTensors describe = nullptr);

  std::span<const std::byte> bytes() const { return bytes_; }
  /// The kernel's argument when the bytes lie at `where`, aligned as a TensorMap is. `draw` is read if weights are
  /// dropped.
  AttendParams params(const std::byte* where, const int* stop, const DropoutDraw* draw = nullptr) const;
  /// Thread blocks to launch: none if nothing is to be computed or written.
  unsigned grid() const;

 private:
  void list_terms(void* max_logit);
  void pack(const WorkList& work, std::span<const QuerySegment> queries, std::span<const KeySegment> keys,
            DescribeTensors describe);

  TileShape shape_;
  ScoreTerms terms_;  ///< without addresses in bytes_
  Owner owner_ = Owner::queries;
  int heads_of_block_ = 1;
  std::size_t block_count_ = 0;
  std::vector<std::byte> bytes_;
  std::size_t blocks_at_ = 0, visits_at_ = 0, cuts_at_ = 0, queries_at_ = 0, keys_at_ = 0, query_maps_at_ = 0,
              key_maps_at_ = 0, slopes_at_ = 0;
};

}  // namespace distattn::kernels::cuda
