/// A schedule that distattn does not know: own queries against the keys of the next rank, then the one after, …

#include <distattn/inproc.hpp>
#include <distattn/registry.hpp>
#include <distattn/verify.hpp>

#include "against_float64.hpp"

using namespace distattn;

Table forward_ring(std::shared_ptr<const Tiles> tiles) {
  const int ranks = tiles->ranks();
  return {ranks, [tiles, ranks](int step, Rank rank, const Table::Sink& sink) {
            emit_tiles(*tiles, 0, rank, (rank + step) % ranks, sink);
          }};
}

int main() {
  register_schedule({.name = "forward-ring",
                     .resolve = [](std::string_view, const Problem&, int) -> RecipeOrReason {
                       return Recipe{.name = "forward-ring",
                                     .layout = {LayoutKind::zigzag, 1},
                                     .table = [](auto tiles, int) { return forward_ring(tiles); }};
                     },
                     .usual_arguments = {}});
  const Problem problem{.seq_q = 333, .seq_kv = 333, .heads = 4, .kv_heads = 2, .head_dim = 32, .value_dim = 32};
  double worst = 0;
  Counts counts;
  run_ranks(5, [&](Rank rank, Transport& transport) {
    const auto device = make_device("reference", {.threads = 1, .local_ranks = 5});
    Attention attention(problem, {.schedule = "forward-ring"}, *device, transport);  // throws if it fails its proof
    const double error = consumer::worst_error(attention, rank);
    if (rank == 0) {
      worst = error;
      counts = attention.counts(Pass::forward);
    }
  });
  std::printf("forward-ring: proved, %d steps, %lld messages, error %.2g\n", counts.steps,
              static_cast<long long>(counts.messages), worst);
  return worst < 1e-5 ? 0 : 1;
}
