#include "cli/bench/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "cli/bench/calibration_runs.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/placement.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {
namespace {

/// The mean over all ranks, each of which computes this many tiles.
Measurements::Kernel kernel_of(const Measured& measured, Pass pass, Coverage coverage, std::int64_t tile,
                               std::int64_t count, int block) {
  const Tiles& tiles = measured.plan->tiles(pass);
  const Problem& problem = tiles.sharding().problem;
  const Run &queries = tiles.sharding().queries.front().run, &keys = tiles.sharding().keys.front().run;
  Measurements::Kernel kernel{problem.dtype, pass, coverage, static_cast<double>(tile)};
  kernel.head_dim = problem.head_dim;
  measured.for_each_step(pass, Lane::compute, [&](Rank, StepId, double s) { kernel.seconds += s; });
  kernel.tiles = static_cast<double>(problem.heads * count);
  kernel.seconds /= kernel.tiles * measured.plan->ranks();
  const double per_pair = flops_per_pair(problem.head_dim, problem.value_dim, pass);
  kernel.flops = static_cast<double>(tiles.mask().pairs(queries, keys)) * per_pair;
  kernel.computed_pairs = static_cast<double>(tiles.mask().computed_pairs(queries, keys, block));
  kernel.computed_flops = kernel.computed_pairs * per_pair;
  return kernel;
}

/// Every rank owns `count` documents and computes their tiles in one launch; nothing is sent.
std::vector<Measurements::Kernel> launches_of_ranks(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                    std::int64_t tile, std::int64_t count, int runs) {
  const int ranks = busy_ranks(options);
  Problem problem = problem_of(options, dtype, tile * count * ranks, coverage);
  problem.mask.documents.push_back(0);
  Placement documents;
  documents.ranks = ranks;
  for (std::int64_t document = 0; document < count * ranks; ++document) {
    documents.segments.push_back({{tile * document, tile}, static_cast<Rank>(document % ranks)});
    problem.mask.documents.push_back(tile * (document + 1));
  }
  const auto device = make_device(options.backend, options.device);
  const bool both = device->why_not(problem, Pass::backward).empty();
  line_up(options);
  ScheduleRequest request{"placed", both ? Passes::both : Passes::forward};
  request.layout = to_json(documents);
  World world = World::of_threads(ranks);
  const Measured measured = measure(world, options, problem, request, runs);
  std::vector<Measurements::Kernel> kernels;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!measured.plan->has(pass)) continue;
    kernels.push_back(kernel_of(measured, pass, coverage, tile, count, device->query_block()));
    kernels.back().by_rank = of_all(options, kernels.back().seconds);
    kernels.back().seconds = mean_of(kernels.back().by_rank);
  }
  return kernels;
}

void keep_faster(const std::vector<Measurements::Kernel>& kernels, std::vector<Measurements::Kernel>& best) {
  if (best.empty()) best = kernels;
  for (std::size_t pass = 0; pass < best.size(); ++pass) {
    if (kernels[pass].seconds < best[pass].seconds) best[pass] = kernels[pass];
  }
}

/// Seconds of a step in which each rank's queries see `keys` keys of its own: of the fastest run.
double few_seconds(const CalibrationOptions& options, DType dtype, std::int64_t queries, std::int64_t keys) {
  const int ranks = busy_ranks(options);
  Problem problem = problem_of(options, dtype, keys * ranks);
  problem.seq_q = queries * ranks;
  std::vector<Band> bands;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const std::int64_t query = problem.first_query() + rank * queries, key = rank * keys;
    bands.push_back({.q0 = query, .q1 = query + queries, .k0 = key, .k1 = key + keys});
  }
  problem.mask = band_mask(std::move(bands));
  constexpr int runs = 5;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < options.runs; ++round) {
    line_up(options);
    const Measured measured = measure(options, problem, "ring", ranks, Passes::forward, runs);
    double seconds = 0;
    measured.for_each_step(Pass::forward, Lane::compute, [&](Rank, StepId, double s) { seconds += s; });
    least = std::min(least, seconds / ranks);
  }
  return mean_of(of_all(options, least));
}

/// Ranks that keep a node's cores busy, each with as many threads as it has of them.
int ranks_of_node(const CalibrationOptions& options) {
  return options.others == nullptr ? 1 : options.others->local_size();
}

/// The options with heads of another dimension; nothing where the device has no kernel for them.
std::optional<CalibrationOptions> with_heads_of(int head_dim, CalibrationOptions options, const Device& device) {
  options.head_dim = options.value_dim = head_dim;
  if (!device.why_not(problem_of(options, options.dtypes.front(), 1), Pass::forward).empty()) return {};
  return options;
}

/// What a pair takes besides its FLOPs, from a tile with heads of two dimensions: seconds grow with FLOPs in a straight
/// line. Both points are measured back to back, because a change of the machine's speed between them would distort the
/// slope; the median over repetitions is used.
class PairCosts {
 public:
  void measure(const CalibrationOptions& options) {
    const auto device = make_device(options.backend, options.device);
    const auto narrow = with_heads_of(32, options, *device), wide = with_heads_of(128, options, *device);
    if (!narrow || !wide) return;
    for (int run = 0; run < options.runs; ++run) {
      const auto tiles_of = [&](const CalibrationOptions& heads) {
        return launches_of_ranks(heads, heads.dtypes.front(), Coverage::full, tile, 1, 1);
      };
      const std::vector<Measurements::Kernel> first = tiles_of(*narrow), second = tiles_of(*wide);
      for (std::size_t pass = 0; pass < first.size(); ++pass) {
        const Measurements::Kernel &a = first[pass], &b = second[pass];
        const double without_flops =
            (a.seconds * b.computed_flops - b.seconds * a.computed_flops) / (b.computed_flops - a.computed_flops);
        seconds_[a.pass].push_back(without_flops / a.computed_pairs);
      }
    }
  }

  /// Seconds of a pair that do not depend on its head dimension.
  PerPass<double> seconds() {
    PerPass<double> medians{};
    for (std::size_t pass = 0; pass < medians.size(); ++pass) {
      std::vector<double>& all = seconds_[pass];
      if (all.empty()) continue;
      std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
      medians[pass] = std::max(0.0, all[all.size() / 2]);
    }
    return medians;
  }

 private:
  static constexpr std::int64_t tile = 512;

  PerPass<std::vector<double>> seconds_;
};

/// What tiles and launches take whatever their size: a tile of one token has nothing else. A launch of one such tile
/// and one of many tell the two apart.
class FixedCosts {
 public:
  void measure(const CalibrationOptions& options) {
    const auto device = make_device(options.backend, options.device);
    for (const int head_dim : {32, 64, 128, 256}) {
      const auto heads = with_heads_of(head_dim, options, *device);
      if (!heads) continue;
      for (const std::int64_t count : {std::int64_t{1}, many_tiles}) {
        for (const Measurements::Kernel& kernel :
             launches_of_ranks(*heads, heads->dtypes.front(), Coverage::full, 1, count, runs)) {
          double& least = least_s_[kernel.pass].try_emplace({head_dim, count}, unlimited).first->second;
          least = std::min(least, kernel.seconds * kernel.tiles);
        }
      }
    }
    heads_ = options.heads;
  }

  /// Adds them to `costs`.
  void tell(TileCosts& costs) const {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      double of_launch = unlimited;
      for (const auto& [what, many_s] : least_s_[pass]) {
        const auto [head_dim, count] = what;
        if (count == 1) continue;
        const double one_s = least_s_[pass].at({head_dim, 1});
        const double tiles = heads_ * static_cast<double>(many_tiles);
        // Where noise hides what a tile takes, next to nothing: descriptions have numbers above 0.
        const double of_tile = std::max((many_s - one_s) / (tiles - heads_), many_s / tiles / tiles);
        costs.points[pass].push_back({static_cast<double>(head_dim), of_tile});
        of_launch = std::min(of_launch, one_s - heads_ * of_tile);
      }
      if (of_launch < unlimited) costs.launch_s[pass] = std::max(0.0, of_launch);
    }
  }

 private:
  static constexpr std::int64_t many_tiles = 64;
  static constexpr int runs = 16;
  static constexpr double unlimited = std::numeric_limits<double>::infinity();

  int heads_ = 1;
  PerPass<std::map<std::pair<int, std::int64_t>, double>> least_s_;  // of a launch, by head dimension and tiles
};

/// ", provider cudnn, deterministic, graphs": whatever is not as usual.
std::string asked_of(const DeviceOptions& device) {
  const std::string words = describe(device);
  return words.empty() ? "" : ", " + words;
}

}  // namespace

int busy_ranks(const CalibrationOptions& options) {
  if (make_device(options.backend, options.device)->space() != MemorySpace::host) return 1;
  return options.others == nullptr ? usable_cores() : options.others->cores();
}

std::vector<Measurements::Kernel> measure_tiles(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                std::int64_t tile) {
  std::vector<Measurements::Kernel> best;
  for (int run = 0; run < options.runs; ++run)
    keep_faster(launches_of_ranks(options, dtype, coverage, tile, 1, 1), best);
  return best;
}

std::vector<Measurements::Kernel> sample_launches(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                  std::int64_t tile) {
  constexpr std::int64_t least_runs = 3, most_runs = 24;
  const std::int64_t smaller = largest_calibrated_tile / tile;
  const std::int64_t runs = std::clamp(least_runs * smaller, least_runs, most_runs);
  return launches_of_ranks(options, dtype, coverage, tile, std::max<std::int64_t>(1, smaller), static_cast<int>(runs));
}

std::vector<KernelVariant> tile_variants(const CalibrationOptions& options, DType dtype, Pass pass, Coverage coverage) {
  const auto device = make_device(options.backend, options.device);
  const Problem problem = problem_of(options, dtype, largest_calibrated_tile, coverage);
  if (!device->why_not(problem, pass).empty()) return {};
  auto variants = device->variants(problem, pass);
  if (variants.empty()) variants.push_back({.part = name_of(pass), .name = "", .used = true});
  return variants;
}

Errors check_tiles(const CalibrationOptions& options, DType dtype, Pass pass, Coverage coverage) {
  constexpr std::int64_t tokens = 331;  // no tile divides it
  CalibrationOptions of_one_key_head = options;
  of_one_key_head.heads = options.heads / options.kv_heads;
  of_one_key_head.kv_heads = 1;
  const Problem problem = problem_of(of_one_key_head, dtype, tokens, coverage);
  const Passes passes = pass == Pass::backward ? Passes::both : Passes::forward;
  const auto plan = std::make_shared<const AttentionPlan>(problem, 1, ScheduleRequest{"ring", passes});
  const Inputs inputs = Inputs::random(shape_of(problem), 0);
  World world = World::of_threads(1);
  const RunResult result = run_sharded(world, plan, inputs, run_options(options, 1));
  return check_results(world, *plan, inputs, result.ranks, passes);
}

FewQueries measure_few(const CalibrationOptions& options, const TileCosts& costs) {
  const auto device = make_device(options.backend, options.device);
  FewQueries few{.queries = device->few_queries(), .rates = {}};
  if (few.queries == 0) return few;
  CalibrationOptions own = options, shared = options;  // heads with keys of their own, and all with the same keys
  own.kv_heads = own.heads;
  shared.kv_heads = 1;
  constexpr std::int64_t few_keys = 1024, many_keys = 16384;
  for (const DType dtype : options.dtypes) {
    // Seconds of a head of keys: one query has little but keys, as many as can be of all heads have little but pairs.
    const double cached_s = few_seconds(own, dtype, 1, few_keys) / own.heads;
    const double pairs_s = few_seconds(shared, dtype, few.queries, few_keys);
    const double rows = few.queries * shared.heads;
    const double pair_s = std::max((pairs_s - cached_s) / std::max(1.0, rows - 1), pairs_s / rows / 2) / few_keys;
    const double besides_s = costs.pair_s[Pass::forward];
    const double per_pair = flops_per_pair(own.head_dim, own.value_dim, Pass::forward);
    const double key_bytes = (own.head_dim + own.value_dim) * static_cast<double>(size_of(dtype));
    const auto bytes_per_s = [&](double seconds, std::int64_t keys) {
      return key_bytes * keys / std::max(seconds - pair_s * keys, seconds / 2);
    };
    const double cached = bytes_per_s(cached_s, few_keys);
    const double uncached = bytes_per_s(few_seconds(own, dtype, 1, many_keys) / own.heads, many_keys);
    const double node_bytes = key_bytes * own.heads * busy_ranks(options) * ranks_of_node(options);
    few.rates[dtype] = {
        per_pair / std::max(pair_s - besides_s, pair_s / 2),
        {{{1, cached}, {node_bytes * few_keys, cached}, {node_bytes * many_keys, std::min(cached, uncached)}}}};
  }
  return few;
}

Measurements calibrate(const CalibrationOptions& options, const std::function<void(const std::string&)>& progress) {
  const int cores = busy_ranks(options) * ranks_of_node(options);
  Measurements measurements;
  measurements.when = utc_now();
  measurements.backend = options.backend;
  measurements.what = fmt::format("{}{}, {}/{} heads of {}, one thread on each of {} cores", options.backend,
                                  asked_of(options.device), options.heads, options.kv_heads, options.head_dim, cores);
  constexpr int rounds = 5;  // so that no tile is measured only while the machine is slower than at other times
  constexpr double budget_s = 45;
  FixedCosts fixed;
  PairCosts pairs;
  const auto began = std::chrono::steady_clock::now();
  const auto has_time_for = [&](int round) {
    const double spent_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const bool enough = round == 0 || spent_s * (round + 1) / round < budget_s;
    return options.others == nullptr ? enough : !options.others->broadcast(enough ? "yes" : "").empty();
  };
  for (int done = 0; done < rounds && has_time_for(done); ++done) {
    for (const DType dtype : options.dtypes) {
      progress(fmt::format("tiles in {}, round {} of at most {}", name_of(dtype), done + 1, rounds));
      for (std::int64_t tile = 64; tile <= largest_calibrated_tile; tile *= 2) {
        for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
          const auto kernels = sample_launches(options, dtype, coverage, tile);
          measurements.kernels.insert(measurements.kernels.end(), kernels.begin(), kernels.end());
        }
      }
    }
    fixed.measure(options);
    pairs.measure(options);
  }
  measurements.tiles.block = make_device(options.backend, options.device)->query_block();
  fixed.tell(measurements.tiles);
  measurements.tiles.pair_s = pairs.seconds();
  progress("tiles of few queries");
  measurements.few = measure_few(options, measurements.tiles);
  progress("copies and merges");
  if (options.others == nullptr) {
    measurements.copies = measure_copies(options);
  } else {
    measurements.transports[std::string(options.others->transport())] = measure_links(*options.others, options);
  }
  measurements.memory_bytes_per_s = measure_merges(options);
  return measurements;
}

void store(const Measurements& measurements) {
  Machine machine = describe(measurements);
  if (const std::optional<Machine> stored = stored_calibration().machine) {
    for (const auto& [transport, links] : stored->transports) machine.transports.emplace(transport, links);
    if (measurements.copies.bytes_per_s == 0 && !stored->measured.empty()) {
      machine.near = stored->near;
      if (stored->sources.contains("near")) machine.sources["near"] = stored->sources.at("near");
    }
  }
  store_calibration(machine);
}

}  // namespace distattn::cli
