#include "bench_kernels.hpp"

#include <fmt/format.h>

#include "console.hpp"
#include "cpu_features.hpp"

namespace distattn::cli {
namespace {

Json kernel_row(const std::string& kernel, const CalibrationOptions& options, int threads) {
  Json row = versioned_object();
  row["kernel"] = kernel;
  row["backend"] = options.backend;
  row["provider"] = options.provider.empty() ? Json(nullptr) : Json(options.provider);
  row["deterministic"] = options.gradient_order == GradientOrder::fixed;
  row["heads"] = options.heads;
  row["kv_heads"] = options.kv_heads;
  row["head_dim"] = options.head_dim;
  row["threads"] = threads;
  for (const char* const field : {"pass", "coverage", "dtype", "seq", "gflops", "peak_gflops", "share", "bytes_per_s",
                                  "peak_bytes_per_s", "latency_s"}) {
    row[field] = nullptr;
  }
  return row;
}

class KernelBench {
 public:
  KernelBench(const KernelRequest& request, Peaks& peaks)
      : options_(request.options),
        dtype_(request.options.dtypes.front()),
        peaks_(peaks),
        cores_(busy_ranks(request.options.backend)) {}

  void attend(std::int64_t tile) {
    for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
      progress_.show(fmt::format("attend {} tokens", tile));
      peak();
      const auto kernels = measure_tiles(options_, dtype_, coverage, tile);
      for (const Measurements::Kernel& kernel : kernels) {
        const double flops_per_s = kernel.flops_per_s * cores_;
        Json row = kernel_row("attend", options_, cores_);
        row["pass"] = name_of(kernel.pass);
        row["coverage"] = coverage == Coverage::full ? "full" : "causal";
        row["dtype"] = name_of(dtype_);
        row["seq"] = tile;
        row["gflops"] = flops_per_s / 1e9;
        row["peak_gflops"] = number_or_null(peak().flops_per_s / 1e9);
        row["share"] = number_or_null(flops_per_s / peak().flops_per_s);
        rows_.push_back(std::move(row));
      }
    }
  }

  void merge() {
    progress_.show("merge");
    Json row = kernel_row("merge", options_, cores_);
    row["bytes_per_s"] = measure_merges(options_) * cores_;
    add_bytes(std::move(row));
  }

  void copy() {
    progress_.show("copy");
    const Link link = measure_copies(options_);
    Json row = kernel_row("copy", options_, 1);
    row["bytes_per_s"] = link.bytes_per_s;
    row["latency_s"] = link.latency_s;
    add_bytes(std::move(row));
  }

  std::vector<Json> rows() { return std::move(rows_); }

 private:
  Peak peak() { return peaks_.measure(options_.backend, dtype_, cores_); }

  void add_bytes(Json row) {
    row["dtype"] = name_of(DType::fp32);
    row["peak_bytes_per_s"] = number_or_null(peak().bytes_per_s);
    rows_.push_back(std::move(row));
  }

  const CalibrationOptions& options_;
  DType dtype_;
  Peaks& peaks_;
  int cores_;
  std::vector<Json> rows_;
  Progress progress_;
};

}  // namespace

std::vector<std::string> kernel_names() { return {"attend", "merge", "copy"}; }

std::vector<Json> kernel_rows(const KernelRequest& request, Peaks& peaks) {
  KernelBench bench(request, peaks);
  for (const std::string& kernel : request.kernels) {
    if (kernel == "merge") bench.merge();
    if (kernel == "copy") bench.copy();
    for (const std::int64_t tile : request.tiles) {
      if (kernel == "attend") bench.attend(tile);
    }
  }
  return bench.rows();
}

}  // namespace distattn::cli
