#include <numeric>
#include <utility>

#include "distattn/error.hpp"
#include "distattn/table.hpp"

namespace distattn {
namespace {

/// x moved by t places among n, neighbours inside a node of `inner` first (a ring of rings); inner 1 or n: a plain
/// ring.
int shifted(int x, int t, int n, int inner, int sign) {
  const auto wrap = [](int value, int size) { return ((value % size) + size) % size; };
  return inner * wrap(x / inner + sign * (t / inner), n / inner) + wrap(x % inner + sign * (t % inner), inner);
}

/// Places of a mesh: the token shard of (r, c) is what its U ranks own.
class Mesh {
 public:
  Mesh(std::shared_ptr<const Tiles> tiles, MeshShape shape, int node_size) : tiles_(std::move(tiles)), shape_(shape) {
    if (node_size <= 0) return;
    inner_rows_ = std::gcd(shape.rows, std::max(1, node_size / shape.groups));
    inner_columns_ = std::gcd(shape.columns, std::max(1, node_size / (shape.groups * shape.rows)));
  }

  void emit(int step, Rank rank, const Table::Sink& sink) const {
    const int u = rank % shape_.groups, r = rank / shape_.groups % shape_.rows, c = rank / shape_.groups / shape_.rows;
    if (step < shape_.rows) {
      emit_shards(u, place(r, c), place(shifted(r, step, shape_.rows, inner_rows_, -1), c), sink);
      return;
    }
    const int visited = shifted(c, step - shape_.rows + 1, shape_.columns, inner_columns_, 1);
    for (int row = 0; row < shape_.rows; ++row) emit_shards(u, place(r, visited), place(row, c), sink);
  }

 private:
  int place(int r, int c) const { return r + shape_.rows * c; }

  void emit_shards(int group, int query_place, int key_place, const Table::Sink& sink) const {
    for (int a = 0; a < shape_.groups; ++a)
      for (int b = 0; b < shape_.groups; ++b)
        emit_tiles(*tiles_, group, a + shape_.groups * query_place, b + shape_.groups * key_place, sink);
  }

  std::shared_ptr<const Tiles> tiles_;
  MeshShape shape_;
  int inner_rows_ = 1, inner_columns_ = 1;
};

}  // namespace

Table mesh(std::shared_ptr<const Tiles> tiles, MeshShape shape, int node_size) {
  DISTATTN_EXPECT(shape.ranks() == tiles->ranks());
  DISTATTN_EXPECT(shape.groups == tiles->groups());
  const auto places = std::make_shared<const Mesh>(std::move(tiles), shape, node_size);
  return {shape.rows + shape.columns - 1,
          [places](int step, Rank rank, const Table::Sink& sink) { places->emit(step, rank, sink); }};
}

}  // namespace distattn
