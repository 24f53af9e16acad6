#include "cli/bench/bench_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "cli/run/cpu_features.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

KernelRow kernel_row(const std::string& kernel, const CalibrationOptions& options, int threads) {
  KernelRow row;
  row.kernel = kernel;
  row.backend = options.backend;
  if (!options.device.gpu.provider.empty()) row.provider = options.device.gpu.provider;
  row.deterministic = options.device.gradient_order == GradientOrder::fixed;
  row.heads = options.heads;
  row.kv_heads = options.kv_heads;
  row.head_dim = options.head_dim;
  row.value_dim = options.value_dim;
  row.threads = threads;
  return row;
}

class KernelBench {
 public:
  KernelBench(const KernelRequest& request, Peaks& peaks)
      : options_(request.options),
        dtype_(request.options.dtypes.front()),
        peaks_(peaks),
        cores_(busy_ranks(request.options)) {}

  void attend(std::int64_t tile) {
    for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
      progress_.show(fmt::format("attend {} tokens", tile));
      peak();
      const auto kernels = measure_tiles(options_, dtype_, coverage, tile);
      for (const Measurements::Kernel& kernel : kernels) {
        rows_.push_back(attend_row("attend", options_, kernel, peak()));
      }
    }
  }

  void attend_variants(std::int64_t tile) {
    struct Family {
      Pass pass;
      Coverage coverage;
      std::vector<KernelVariant> variants;
    };
    std::vector<Family> families;  // asked for before a kernel can fail, and perhaps its device with it
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
        families.push_back({pass, coverage, tile_variants(options_, dtype_, pass, coverage)});
      }
    }
    for (const Family& family : families) {
      const auto first = rows_.size();
      for (const KernelVariant& variant : family.variants) attend_with(variant, family.pass, family.coverage, tile);
      mark_fastest(std::span(rows_).subspan(first));
    }
  }

  void merge() {
    progress_.show("merge");
    KernelRow row = kernel_row("merge", options_, cores_);
    row.bytes_per_s = measure_merges(options_) * cores_;
    add_bytes(std::move(row));
  }

  void copy() {
    progress_.show("copy");
    const Link link = measure_copies(options_);
    KernelRow row = kernel_row("copy", options_, 1);
    row.bytes_per_s = link.bytes_per_s;
    row.latency_s = link.latency_s;
    add_bytes(std::move(row));
  }

  std::vector<KernelRow> rows() { return std::move(rows_); }

 private:
  KernelRow attend_row(const char* name, const CalibrationOptions& options, const Measurements::Kernel& kernel,
                       const Peak& best) {
    const double flops_per_s = kernel.flops_per_s() * cores_;
    KernelRow row = kernel_row(name, options, cores_);
    row.pass = kernel.pass;
    row.coverage = kernel.coverage == Coverage::full ? "full" : "causal";
    row.dtype = dtype_;
    row.seq = static_cast<std::int64_t>(kernel.tile);
    row.gflops = flops_per_s / 1e9;
    row.peak_gflops = best.flops_per_s / 1e9;
    row.share = flops_per_s / best.flops_per_s;
    return row;
  }

  /// What computes wrongly is not timed. A kernel that fails leaves the others their turn.
  void attend_with(const KernelVariant& variant, Pass pass, Coverage coverage, std::int64_t tile) {
    CalibrationOptions options = options_;
    options.device.gpu.variant = variant.name;
    const std::string name = variant.name.empty() ? "usual" : variant.name;
    progress_.show(fmt::format("{} {} tokens, {}", name_of(pass), tile, name));
    Measurements::Kernel measured{dtype_, pass, coverage, static_cast<double>(tile)};
    Peak best{unknown_number, unknown_number};
    std::optional<Errors> errors;
    std::optional<std::string> failure;
    try {
      errors = check_tiles(options, dtype_, pass, coverage);
      best = peak();
      if (errors->within_tolerance(pass)) {
        for (const auto& kernel : measure_tiles(options, dtype_, coverage, tile)) {
          if (kernel.pass == pass) measured = kernel;
        }
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      failure = error.what();
    }
    KernelRow row = attend_row("attend-variants", options, measured, best);
    row.part = variant.part;
    row.variant = name;
    row.used = variant.used;
    if (errors) row.error = row_of(*errors);
    if (errors) row.max_error = errors->largest(pass);
    row.failure = failure;
    row.ok = !failure && errors->within_tolerance(pass);
    rows_.push_back(std::move(row));
  }

  /// Of the rows of a pass and coverage: in each of its parts.
  static void mark_fastest(std::span<KernelRow> rows) {
    for (KernelRow& row : rows) {
      row.fastest = std::isfinite(row.gflops) && std::none_of(rows.begin(), rows.end(), [&](const KernelRow& other) {
                      return other.part == row.part && other.gflops > row.gflops;
                    });
    }
  }

  Peak peak() { return peaks_.measure(options_.backend, dtype_, cores_); }

  void add_bytes(KernelRow row) {
    row.dtype = DType::fp32;
    row.peak_bytes_per_s = peak().bytes_per_s;
    rows_.push_back(std::move(row));
  }

  const CalibrationOptions& options_;
  DType dtype_;
  Peaks& peaks_;
  int cores_;
  std::vector<KernelRow> rows_;
  Progress progress_;
};

}  // namespace

std::vector<std::string> kernel_names() { return {"attend", "attend-variants", "merge", "copy"}; }

std::vector<KernelRow> kernel_rows(const KernelRequest& request, Peaks& peaks) {
  KernelBench bench(request, peaks);
  for (const std::string& kernel : request.kernels) {
    if (kernel == "merge") bench.merge();
    if (kernel == "copy") bench.copy();
    for (const std::int64_t tile : request.tiles) {
      if (kernel == "attend") bench.attend(tile);
      if (kernel == "attend-variants") bench.attend_variants(tile);
    }
  }
  return bench.rows();
}

}  // namespace distattn::cli
