#include "calibration_report.hpp"

#include <fmt/format.h>

#include "distattn/words.hpp"
#include "output.hpp"

namespace distattn::cli {
namespace {

/// "over ucx 4.00 GiB/s after 2.0 us between nodes, shared by a node's ranks"
std::string text_of(const std::string& transport, const Link& link, const char* where) {
  return fmt::format("over {} {} {}/s after {}\n", transport, where, bytes_in_words(link.bytes_per_s),
                     seconds_in_words(link.latency_s));
}

std::string text_of(const std::map<std::string, MeasuredLinks>& transports) {
  std::string text;
  for (const auto& [name, links] : transports) {
    if (links.near) text += text_of(name, *links.near, "within a node");
    if (!links.far) continue;
    text += text_of(
        name, *links.far,
        links.far_owner == LinkOwner::node ? "between nodes, all ranks of one together" : "between nodes, every rank");
  }
  return text;
}

}  // namespace

std::string text_of(const Machine& machine, int head_dim) {
  Columns columns({"tokens", "type", "pass", "full GFLOP/s", "causal GFLOP/s"});
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const KernelRates& rates = machine.rates_of(dtype, pass);
      for (const RateCurve::Point& point : rates.full.points) {
        columns.add({fmt::format("{:.0f}", point.tile), name_of(dtype), name_of(pass),
                     fmt::format("{:.2f}", point.flops_per_s / 1e9),
                     fmt::format("{:.2f}", rates.partial.at(point.tile) / 1e9)});
      }
    }
  }
  return fmt::format(
      "{}, {} cores: {}\ncopies {}/s after {}, merges {}/s\n{}a tile of one head {} forward, {} backward, a million "
      "pairs {}, {}, besides the products of those that blocks of {} queries meet; of one thread:\n{}",
      machine.name, machine.cores, describe_age(machine), bytes_in_words(machine.near.bytes_per_s),
      seconds_in_words(machine.near.latency_s), bytes_in_words(machine.memory_bytes_per_s), text_of(machine.transports),
      seconds_in_words(machine.tiles.seconds(Pass::forward, head_dim)),
      seconds_in_words(machine.tiles.seconds(Pass::backward, head_dim)),
      seconds_in_words(1e6 * machine.tiles.pair_s[0]), seconds_in_words(1e6 * machine.tiles.pair_s[1]),
      machine.tiles.block, columns.text());
}

}  // namespace distattn::cli
