#include "kernels/cuda/attend_params.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "distattn/error.hpp"
#include "kernels/dropout.hpp"
#include "kernels/scores.hpp"

namespace distattn::kernels::cuda {
namespace {

/// Appends the elements on a boundary that suits all of them, tensor maps too, and says where they begin.
template <class T>
std::size_t append(std::vector<std::byte>& bytes, std::span<const T> elements) {
  constexpr std::size_t alignment = alignof(TensorMap);
  const std::size_t begin = (bytes.size() + alignment - 1) / alignment * alignment;
  bytes.resize(begin + elements.size_bytes());
  if (!elements.empty()) std::memcpy(bytes.data() + begin, elements.data(), elements.size_bytes());
  return begin;
}

/// Kernels read and write packed arrays.
template <class Void>
Void* of_queries(const BasicRows<Void>& rows, const TileShape& shape, const Run& queries, int dim) {
  return packed_data(rows, shape.heads.q_count, queries.count, dim);
}
template <class Void>
Void* of_keys(const BasicRows<Void>& rows, const TileShape& shape, const Run& keys, int dim) {
  return packed_data(rows, shape.heads.kv_count, keys.count, dim);
}

int value_stride(const TileShape& shape) { return shape.shared_kv ? shape.head_dim : shape.value_dim; }

QuerySegment query_segment(const AttendArgs& args) {
  const TileShape& shape = args.shape;
  return {.run = args.queries,
          .q = of_queries(args.q, shape, args.queries, shape.head_dim),
          .o = static_cast<float*>(of_queries(args.o, shape, args.queries, shape.value_dim)),
          .lse = static_cast<float*>(args.lse),
          .lse_low = args.lse_low,
          .carry = args.carry};
}

QuerySegment query_segment(const AttendBackwardArgs& args) {
  const TileShape& shape = args.shape;
  return {.run = args.queries,
          .q = of_queries(args.q, shape, args.queries, shape.head_dim),
          .lse = static_cast<float*>(const_cast<void*>(args.lse)),
          .lse_low = const_cast<std::uint16_t*>(args.lse_low),
          .d_o = of_queries(args.d_o, shape, args.queries, shape.value_dim),
          .delta = static_cast<const float*>(args.delta),
          .dq = static_cast<float*>(of_queries(args.dq, shape, args.queries, shape.head_dim)),
          .carry = args.carry};
}

KeySegment key_segment(const KeySide& side, const TileShape& shape) {
  KeySegment segment{.run = side.keys,
                     .k = of_keys(side.k, shape, side.keys, shape.head_dim),
                     .v = of_keys(side.v, shape, side.keys, value_stride(shape)),
                     .carry = side.carry};
  if (side.dk.data == nullptr) return segment;
  segment.dk = static_cast<float*>(of_keys(side.dk, shape, side.keys, shape.head_dim));
  segment.dv = static_cast<float*>(of_keys(side.dv, shape, side.keys, value_stride(shape)));
  return segment;
}

/// Segments, and which of them meet: bands as the operations gave them.
struct Meetings {
  std::vector<QuerySegment> queries;
  std::vector<KeySegment> keys;
  std::vector<Pairing> pairings;  ///< own: index of the query segment
};

template <class Args>
Meetings meetings_of(std::span<const Args> operations) {
  Meetings all;
  std::map<const void*, int> known;  // key segments by their gradients
  for (const Args& args : operations) {
    const auto query = static_cast<int>(all.queries.size());
    all.queries.push_back(query_segment(args));
    for (const KeySide& side : args.keys) {
      auto key = static_cast<int>(all.keys.size());
      if (side.dk.data != nullptr) key = known.try_emplace(side.dk.data, key).first->second;
      if (key == static_cast<int>(all.keys.size())) all.keys.push_back(key_segment(side, args.shape));
      all.pairings.push_back({query, key, side.keys, side.bands});
    }
  }
  return all;
}

WorkList list_by_queries(const Meetings& all, TileSize tile) {
  std::vector<OwnSide> sides;
  for (const QuerySegment& query : all.queries) sides.push_back({query.run, !query.carry});
  return list_work(sides, all.pairings, tile);
}

WorkList list_by_keys(const Meetings& all, TileSize tile) {
  std::vector<OwnSide> sides;
  for (const KeySegment& key : all.keys) sides.push_back({key.run, !key.carry});
  std::vector<std::vector<Band>> bands;  // turned round; outlives the pairings
  std::vector<Pairing> pairings;
  for (const Pairing& pairing : all.pairings) {
    auto& turned = bands.emplace_back();
    for (const Band& band : pairing.bands) turned.push_back(transposed(band));
    const Run& columns = all.queries[static_cast<std::size_t>(pairing.own)].run;
    pairings.push_back({pairing.other, pairing.own, columns, turned});
  }
  return list_work(sides, pairings, tile);
}

}  // namespace

AttendPlan::AttendPlan(std::span<const AttendArgs> operations, TileSize tile, DescribeTensors describe)
    : heads_of_block_(tile.heads) {
  DISTATTN_EXPECT(!operations.empty());
  shape_ = operations.front().shape;
  list_terms(operations.front().max_logit);
  const Meetings all = meetings_of(operations);
  pack(list_by_queries(all, tile), all.queries, all.keys, describe);
}

AttendPlan::AttendPlan(std::span<const AttendBackwardArgs> operations, Owner owner, TileSize tile,
                       DescribeTensors describe)
    : owner_(owner), heads_of_block_(tile.heads) {
  DISTATTN_EXPECT(!operations.empty());
  shape_ = operations.front().shape;
  list_terms(nullptr);
  const Meetings all = meetings_of(operations);
  pack(owner == Owner::queries ? list_by_queries(all, tile) : list_by_keys(all, tile), all.queries, all.keys, describe);
}

/// Slopes and dropout are copied: what the shape points to may change or end before the kernels run.
void AttendPlan::list_terms(void* max_logit) {
  terms_.cap = static_cast<float>(shape_.scores.softcap);
  if (shape_.scores.softcap != 0) terms_.inverse_cap = static_cast<float>(1 / shape_.scores.softcap);
  terms_.largest = static_cast<float*>(max_logit);
  if (shape_.alibi_slopes != nullptr) {
    const std::vector<float> slopes(shape_.alibi_slopes, shape_.alibi_slopes + shape_.heads.q_count);
    slopes_at_ = append(bytes_, std::span(slopes));
  }
  if (shape_.dropout == nullptr) return;
  const HeadDropout head(*shape_.dropout, 0, 0);
  terms_.drop_below = head.limit;
  terms_.kept = static_cast<float>(head.kept);
  terms_.heads_of_all = shape_.dropout->heads;
}

void AttendPlan::pack(const WorkList& work, std::span<const QuerySegment> queries, std::span<const KeySegment> keys,
                      DescribeTensors describe) {
  block_count_ = work.blocks.size();
  blocks_at_ = append(bytes_, std::span(work.blocks));
  visits_at_ = append(bytes_, std::span(work.visits));
  cuts_at_ = append(bytes_, std::span(work.cuts));
  queries_at_ = append(bytes_, queries);
  keys_at_ = append(bytes_, keys);
  if (describe == nullptr) return;
  std::vector<QueryMaps> query_maps(queries.size());
  std::vector<KeyMaps> key_maps(keys.size());
  const int status = describe(shape_, queries, query_maps, keys, key_maps);
  if (status != 0) {
    throw Error(ErrorKind::environment, "the GPU's copy engine does not take the tensors (CUDA error " +
                                            std::to_string(status) + "): update the NVIDIA driver");
  }
  query_maps_at_ = append(bytes_, std::span<const QueryMaps>(query_maps));
  key_maps_at_ = append(bytes_, std::span<const KeyMaps>(key_maps));
}

AttendParams AttendPlan::params(const std::byte* where, const int* stop, const DropoutDraw* draw) const {
  ScoreTerms terms = terms_;
  if (shape_.alibi_slopes != nullptr) terms.slopes = reinterpret_cast<const float*>(where + slopes_at_);
  if (shape_.dropout != nullptr) terms.draw = draw;
  return {.blocks = reinterpret_cast<const Block*>(where + blocks_at_),
          .visits = reinterpret_cast<const Visit*>(where + visits_at_),
          .cuts = reinterpret_cast<const Cut*>(where + cuts_at_),
          .queries = reinterpret_cast<const QuerySegment*>(where + queries_at_),
          .keys = reinterpret_cast<const KeySegment*>(where + keys_at_),
          .query_maps = reinterpret_cast<const QueryMaps*>(where + query_maps_at_),
          .key_maps = reinterpret_cast<const KeyMaps*>(where + key_maps_at_),
          .stop = stop,
          .block_count = static_cast<std::int32_t>(block_count_),
          .batch = static_cast<std::int32_t>(shape_.batch),
          .head_dim = shape_.head_dim,
          .value_dim = shape_.value_dim,
          .value_stride = value_stride(shape_),
          .scores = Fp32Scores(shape_.scores),
          .heads = shape_.heads,
          .terms = terms};
}

unsigned AttendPlan::grid() const {
  const int heads = owner_ == Owner::queries ? shape_.heads.q_count / heads_of_block_ : shape_.heads.kv_count;
  return static_cast<unsigned>(block_count_ * static_cast<std::size_t>(shape_.batch) * static_cast<std::size_t>(heads));
}

}  // namespace distattn::kernels::cuda
