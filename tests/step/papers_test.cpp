#include "cli/step/papers.hpp"

#include <array>
#include <cmath>
#include <fstream>

#include "catch.hpp"
#include "cli/step/embedded.hpp"
#include "cli/step/paper_figure.hpp"
#include "cli/tools/papers/paper_quantity.hpp"
#include "distattn/error.hpp"
#include "distattn/machine.hpp"
#include "support/papers.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

namespace {

/// Sum of the squared logarithms of ours / published over Table 2's columns to which the machine was fitted, with other
/// figures of the machine.
double misfit(const Machine& machine) {
  const std::string file = "papers_test_machine.json";
  std::ofstream(file) << to_json(machine);
  const std::string common =
      R"("figure": "forward_s", "model": "llama-7b", "ranks": 8, "machine": ")" + file + R"(", )";
  const std::string burst = R"("schedule": "ring/burst", "mask": "full", "routed": true})",
                    megatron = R"("baseline": "megatron"})";
  constexpr std::array<double, 7> burst_s = {.44, .84, 1.68, 3.27, 6.49, 16.01, 49.32};
  constexpr std::array<double, 7> megatron_s = {.73, 1.36, 2.68, 5.67, 12.25, 28.73, 75.52};
  double sum = 0;
  for (std::size_t i = 0; i < burst_s.size(); ++i) {
    const std::string tokens = R"("tokens": )" + std::to_string(4096 << i) + ", ";
    sum += std::pow(std::log(paper_figure("{" + common + tokens + burst).value / burst_s[i]), 2);
    sum += std::pow(std::log(paper_figure("{" + common + tokens + megatron).value / megatron_s[i]), 2);
  }
  std::remove(file.c_str());
  return sum;
}

}  // namespace

TEST_CASE("every whole-model figure is computed, and every difference has the sign and size of its note",
          "[step][again]") {
  REQUIRE(embedded_files().size() == 3);
  for (const EmbeddedFile& file : embedded_files()) {
    const PaperTable table = compare_steps_with_paper(std::string(file.name));
    CHECK(table.rows.size() > 30);
    check_explained(table);
    for (const PaperRow& row : table.rows) CHECK((std::isnan(row.ours) || row.ours > 0));
  }
}

TEST_CASE("DistFlashAttn: steps within a quarter of Table 1, checkpointing within 15 % of Table 5, overlap near",
          "[step]") {
  const PaperTable table = compare_steps_with_paper("distflashattn");
  for (const PaperRow& row : table.rows) {
    INFO(row.where << ", " << row.what);
    if (row.where == "Table 1") CHECK(std::abs(row.relative_difference()) < 0.25);
    if (row.where == "Table 1, speedup") CHECK(std::abs(row.relative_difference()) < 0.12);
    if (row.where == "Table 5, speedup") CHECK(std::abs(row.relative_difference()) < 0.15);
  }
  CHECK(row_of(table, "§1", "overlap end to end, LLaMA-7B, 16 GPUs, 512K tokens").agrees());
}

TEST_CASE("the machine of BurstAttention's tables is fitted to Table 2 and predicts Table 3", "[step]") {
  const PaperTable table = compare_steps_with_paper("burstattention");
  int fitted = 0, predicted = 0;
  for (const PaperRow& row : table.rows) {
    INFO(row.where << ", " << row.what);
    fitted += row.kind == PaperKind::calibrated;
    if (row.kind == PaperKind::calibrated) CHECK(row.where == "Table 2");
    if (row.where != "Table 3") continue;
    ++predicted;
    CHECK(row.kind != PaperKind::calibrated);
    CHECK(std::abs(row.relative_difference()) < 0.12);
  }
  CHECK(fitted == 14);
  CHECK(predicted == 14);
  const Machine machine = find_machine("a100-pcie-roce");
  for (const char* field : {"near.bytes_per_s", "flops_per_s.bf16.forward"}) {
    CHECK_THAT(machine.sources.at(field), Contains("calibrated on BurstAttention's Table 2"));
  }
}

TEST_CASE("no rates or links near those of BurstAttention's machine fit its Table 2 better", "[step]") {
  const Machine machine = find_machine("a100-pcie-roce");
  const double least = misfit(machine);
  CHECK(std::sqrt(least / 14) < 0.07);
  for (const double factor : {0.95, 1.05}) {
    Machine other = machine;
    other.near.bytes_per_s *= factor;
    CHECK(misfit(other) > least);
    other = machine;
    for (auto& point : other.rates[DType::bf16][0]->full.points) point.flops_per_s *= factor;
    for (auto& point : other.rates[DType::bf16][0]->partial.points) point.flops_per_s *= factor;
    CHECK(misfit(other) > least);
  }
}

TEST_CASE("the same quantity is the same number in a step and alone", "[step]") {
  for (const char* machine : {"dgx-a100x2", "a100-pcie-roce"}) {
    const std::string on = R"("machine": ")" + std::string(machine) + R"(", "ranks": 16, "tokens": 131072, )";
    for (const char* schedule : {"balanced", "ring", "attention2d"}) {
      const auto alone =
          paper_quantity("{" + on + R"("heads": 32, "head_dim": 128, "seconds": ")" + schedule + "\"}", "test");
      const auto layer = paper_figure(
          "{" + on + R"("model": "llama-7b", "figure": "layer_attention_s", "schedule": ")" + schedule + "\"}");
      CHECK(alone.value == layer.value);
    }
  }
  const PaperTable alone = compare_with_paper("burstattention"), steps = compare_steps_with_paper("burstattention");
  for (const auto& [where, ranks] : {std::pair("§1", "8"), std::pair("Abstract", "32")}) {
    const std::string gpus = std::string(ranks) + " GPUs, 128K tokens";
    CHECK(row_of(alone, where, "speed against tensor parallelism, " + gpus + ", attention alone").published ==
          row_of(steps, where, "training speed over TP (Megatron V3), LLaMA-7b, " + gpus).published);
  }
}

TEST_CASE("a figure that is not understood is refused", "[step]") {
  const auto figure = [](const std::string& more) {
    return paper_figure(
        R"({"figure": "seconds", "model": "llama-7b", "ranks": 8, "tokens": 8192, "machine": "dgx-a100x2")" + more +
        "}");
  };
  CHECK(figure("").value > 0);
  for (const char* more : {R"(, "layrs": 2)", R"(, "mask": "block")", R"(, "mode": "late")", R"(, "baseline": "none")",
                           R"(, "state": "lost")"}) {
    CHECK_THROWS_AS(figure(more), Error);
  }
}

TEST_CASE("a paper that is not here is refused with those that are", "[step]") {
  REQUIRE_THROWS_WITH(compare_steps_with_paper("attention"), Contains("attention2d, burstattention, distflashattn"));
}
