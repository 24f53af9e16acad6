#include "distattn/machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/src/embedded.hpp"
#include "core/src/prediction/machine_store.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"

namespace distattn {
namespace {

constexpr std::string_view machine_folder = "machines/";

/// Of a description: thousands of times what a calibration writes.
constexpr std::size_t longest_machine = 1 << 24;

std::string read_text(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_directory(path, ignored)) {
    refuse(fmt::format("no machine '{}' (neither built in nor a readable file): use {}, this, or a description's path",
                       path, fmt::join(built_in_machines(), ", ")));
  }
  return read_file_or_pipe(path, longest_machine);
}

}  // namespace

double RateCurve::at(double tile) const {
  const auto next = std::find_if(points.begin(), points.end(), [tile](const Point& p) { return p.tile >= tile; });
  if (next == points.end()) return points.back().flops_per_s;
  if (next == points.begin()) return next->tile > 0 ? next->flops_per_s * tile / next->tile : next->flops_per_s;
  const Point& last = *(next - 1);
  const double share = last.tile > 0 ? std::log(tile / last.tile) / std::log(next->tile / last.tile) : 1;
  return last.flops_per_s + share * (next->flops_per_s - last.flops_per_s);
}

double TileCosts::seconds(Pass pass, double head_dim) const {
  const std::vector<Point>& curve = points[pass];
  if (curve.empty()) return 0;
  const auto next = std::find_if(curve.begin(), curve.end(), [&](const Point& p) { return p.head_dim >= head_dim; });
  if (next == curve.begin()) return next->seconds;
  const Point& last = *(next - 1);
  if (next == curve.end()) return last.seconds * head_dim / last.head_dim;
  return last.seconds + (next->seconds - last.seconds) * (head_dim - last.head_dim) / (next->head_dim - last.head_dim);
}

const FewQueries::Rates* FewQueries::of(DType dtype, Pass pass, std::int64_t tile_queries) const {
  const std::optional<Rates>& stated = rates[dtype];
  return pass == Pass::forward && tile_queries <= queries && stated ? &*stated : nullptr;
}

Machine Machine::over(std::string_view transport) const {
  Machine machine = *this;
  const auto found = transports.find(std::string(transport));
  if (found == transports.end()) return machine;
  machine.near = found->second.near.value_or(near);
  if (found->second.far) {
    machine.far = *found->second.far;
    machine.far_owner = found->second.far_owner;
  }
  if (!found->second.speeds.empty()) machine.speeds = found->second.speeds;
  return machine;
}

Machine Machine::in_nodes_of(int node_size) const {
  Machine machine = *this;
  if (nodes == 1 || node_size <= 0) return machine;
  machine.nodes = std::max(2, (ranks() + node_size - 1) / node_size);
  machine.ranks_per_node = node_size;
  return machine;
}

const KernelRates& Machine::rates_of(DType dtype, Pass pass) const {
  const auto& found = rates[dtype][pass];
  if (!found) {
    refuse(fmt::format("no prediction for {} (machine '{}' states no flops_per_s for it): choose another dtype",
                       name_of(dtype), name));
  }
  return *found;
}

double Machine::product_flops_per_s(DType dtype) const {
  constexpr double largest_side = 1 << 20;
  return rates_of(dtype, Pass::forward).full.at(largest_side);
}

double Machine::speed_of_all(int ranks) const {
  double sum = 0;
  for (Rank rank = 0; rank < ranks; ++rank) sum += speed_of(rank);
  return sum;
}

std::int64_t Machine::memory_of_rank(int ranks) const {
  if (cores == 0) return memory_bytes;
  return memory_bytes / std::max(1, on_a_node(ranks));
}

int Machine::threads_of_rank(int ranks) const { return std::max(1, cores / on_a_node(ranks)); }

std::vector<std::string> built_in_machines() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name.starts_with(machine_folder) && file.name != nominal_file)
      names.emplace_back(file.name.substr(machine_folder.size()));
  }
  return names;
}

Machine find_machine(const std::string& name_or_file) {
  if (name_or_file == "this") return stored_or_nominal_machine();
  for (const std::string& name : built_in_machines()) {
    if (name == name_or_file)
      return machine_from_json(*embedded_file(std::string(machine_folder) + name), "machine " + name);
  }
  const std::string origin = "machine file " + name_or_file;
  Machine machine = machine_from_json(read_text(name_or_file), origin);
  if (machine.name == origin) machine.name = name_or_file;  // messages say "machine" before it themselves
  return machine;
}

}  // namespace distattn
