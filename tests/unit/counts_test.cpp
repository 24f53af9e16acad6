/// The published counts: steps, messages, bytes, idle share and peak remote values of every schedule.

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "catch.hpp"
#include "distattn/plan.hpp"

using namespace distattn;

namespace {

struct Row {
  std::string pass, schedule;
  int ranks = 0, steps = 0;
  long messages = 0;
  double max = 0, mean = 0, idle = 0;
  long peak = 0;
};

std::vector<Row> published() {
  std::ifstream file(DISTATTN_TEST_DATA "/counts.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    Row row;
    in >> row.pass >> row.ranks >> row.schedule >> row.steps >> row.messages >> row.max >> row.mean >> row.idle >>
        row.peak;
    REQUIRE(in);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("every schedule has the published counts") {
  const std::vector<Row> rows = published();
  REQUIRE(rows.size() == 50);
  for (const Row& row : rows) {
    INFO(row.pass << " P=" << row.ranks << " " << row.schedule);
    Problem problem;
    problem.seq_q = problem.seq_kv = 1024 * row.ranks;
    problem.heads = problem.kv_heads = 32;
    problem.head_dim = problem.value_dim = 128;
    problem.dtype = DType::bf16;
    problem.mask = causal_mask();
    const auto planned = or_refuse(plan(problem, row.ranks, {row.schedule, Passes::both}));
    const PassPlan pass = predict(planned)[row.pass == "forward" ? 0 : 1];
    const Counts& counts = pass.counts;
    CHECK(counts.steps == row.steps);
    CHECK(counts.messages == row.messages);
    const double unit = 1024.0 * 32 * 128 * 2;
    const auto& sent = counts.bytes_sent;
    // The published counts send four bytes of a statistic; its low part adds two. Gradients also have four for each row
    // of dQ, and some for each segment of queries.
    const double more = row.pass == "forward" ? 2.0 / (128 * 4) : 0.0075;
    const auto is_counted = [&](std::int64_t bytes, double published) {
      const double counted = static_cast<double>(bytes) / unit;
      return counted > published - 6e-4 && counted < published * (1 + more) + 6e-4;
    };
    CHECK(is_counted(*std::max_element(sent.begin(), sent.end()), row.max));
    CHECK(is_counted(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}) / row.ranks, row.mean));
    CHECK(pass.idle_ideal == Approx(row.idle).margin(6e-5));
    CHECK(*std::max_element(counts.peak_remote_values.begin(), counts.peak_remote_values.end()) == row.peak);
  }
}
