#pragma once
/// Graphs of cuDNN's operations, put together operation by operation.

#include <array>
#include <optional>
#include <vector>

#include "backends/cudnn/attend_shape.hpp"
#include "backends/cudnn/library.hpp"

namespace distattn::backends::cudnn {

/// The tensors of a graph that memory or a value stands behind. Intermediate ones count on from `intermediate`.
enum class Uid : std::int64_t {
  q = 1,
  k,
  v,
  o,
  stats,
  scale,
  hidden,
  left,
  right,
  d_o,
  delta,
  one,
  dq_sum,
  dq,
  dk,
  dv,
  intermediate = 100
};

/// Of a tensor: batch, head, row and column; lengths or strides.
using Dims = std::array<std::int64_t, 4>;

/// Collects operations in the order in which they are made, which cuDNN's engines look at: they know the graphs that
/// NVIDIA's own front end makes.
class GraphBuilder {
 public:
  /// Both must outlive it.
  GraphBuilder(const Library& library, const AttendShape& shape);

  /// Of shape.pass.
  void build() { shape_.pass == Pass::forward ? attention() : gradients(); }
  const std::vector<Descriptor>& operations() const { return operations_; }

 private:
  enum class Kind { memory, intermediate, value };
  struct Pointwise {
    PointwiseMode mode;
    DataType computed_in = DataType::fp32;
    std::int64_t axis = -1;
    const Descriptor* choice = nullptr;
  };

  void attention();
  void gradients();

  Descriptor tensor(Uid uid, DataType type, const Dims& dims, const Dims& strides, Kind kind);
  Descriptor intermediate(DataType type, const Dims& dims);
  Descriptor intermediate(DataType type, const Dims& dims, const Dims& strides);
  Descriptor value(Uid uid, DataType type);
  Descriptor queries(Uid uid, std::int64_t dim);
  Descriptor keys_transposed(Uid uid, std::int64_t dim);
  Descriptor statistics();

  Descriptor matmul(const Descriptor& a, const Descriptor& b, const Descriptor& c);
  void pointwise(const Pointwise& what, const Descriptor& x, const Descriptor* b, const Descriptor& y);
  Descriptor pointwise(PointwiseMode mode, const Descriptor& x, const Descriptor& b);
  Descriptor reduce(ReductionOperator how, const Descriptor& x, const Descriptor& y);
  Descriptor reshape(const Descriptor& x, const Descriptor& y);

  Descriptor scores_of(const Descriptor& products, const Descriptor& scale);
  Descriptor product_gradients(const Descriptor& d_scores, const Descriptor& scale);
  Descriptor masked(Descriptor scores);
  Descriptor visible_before_right(const Descriptor& scores);
  Descriptor visible_behind_left(const Descriptor& scores);
  Descriptor index_along(std::int64_t axis, const Descriptor& scores);
  Descriptor shifted(const Descriptor& indices, Uid by, DataType type);
  Descriptor where(PointwiseMode comparison, const Descriptor& a, const Descriptor& b, const Descriptor& scores);
  Descriptor softmax(const Descriptor& scores);
  Descriptor delta(const Descriptor& d_o);
  void key_gradient(Uid uid, const Descriptor& scores, const Descriptor& rows, std::int64_t dim);
  void query_gradient(const Descriptor& scores, const Descriptor& k);

  const Library& library_;
  const AttendShape& shape_;
  const DataType type_;  // of inputs and weights
  const Dims score_dims_, row_dims_;
  std::vector<Descriptor> operations_;
  std::optional<Descriptor> hidden_;
  std::int64_t intermediates_ = 0;
};

}  // namespace distattn::backends::cudnn
