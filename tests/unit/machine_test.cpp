#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "catch.hpp"
#include "cli/tools/calibrate.hpp"
#include "distattn/error.hpp"
#include "distattn/machine.hpp"
#include "unit/io/scratch.hpp"

using namespace distattn;
using namespace distattn::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

json description() {
  return json::parse(R"({
    "nodes": 4, "ranks_per_node": 8,
    "near": {"bytes_per_s": 300e9, "latency_s": 5e-6},
    "far": {"bytes_per_s": 12.5e9, "latency_s": 0, "per": "node"},
    "flops_per_s": {"bf16": 400e12, "fp32": [[128, 1e12], [512, 3e12]],
                    "fp16": {"forward": {"full": 4e12, "partial": 3e12}, "backward": 2e12}},
    "tiles": {"block": 48, "forward_s": [[32, 2e-6], [64, 4e-6]], "backward_s": [[64, 9e-6]],
              "backward_pair_s": 3e-10},
    "few_queries": {"queries": 8, "bf16": {"flops_per_s": 9e11, "key_bytes_per_s": [[1e6, 4e9], [1e8, 2e9]]},
                    "fp32": {"flops_per_s": 7e11, "key_bytes_per_s": 5e9}},
    "memory_bytes": 80000000000, "cores": 0})");
}

Machine read(const json& text) { return machine_from_json(text.dump(), "m.json"); }

std::string refusal_of(const json& text) {
  return refusal([&] { read(text); });
}

}  // namespace

TEST_CASE("a description is read field by field", "[machine]") {
  const Machine machine = read(description());
  CHECK(machine.name == "m.json");
  CHECK(machine.ranks() == 32);
  CHECK(machine.near == Link{300e9, 5e-6});
  CHECK(machine.far == Link{12.5e9, 0});
  CHECK(machine.far_owner == LinkOwner::node);
  CHECK(machine.memory_of_rank(32) == 80'000'000'000);
  CHECK(machine.rates_of(DType::bf16, Pass::backward).partial.at(7) == 400e12);
  CHECK(machine.rates_of(DType::fp16, Pass::forward).partial.at(7) == 3e12);
  CHECK(machine.rates_of(DType::fp16, Pass::backward).full.at(7) == 2e12);
  CHECK_THAT(refusal([&] { machine.rates_of(DType::fp64, Pass::forward); }), Contains("fp64"));
}

TEST_CASE("ranks may have speeds of their own", "[machine]") {
  json text = description();
  CHECK(read(text).speed_of(31) == 1);
  text["ranks"] = {{{"node", 1}, {"speed", 0.5}}, {{"rank", 9}, {"speed", 0.75}}};
  const Machine machine = read(text);
  CHECK(machine.speed_of(7) == 1);
  CHECK(machine.speed_of(8) == 0.5);
  CHECK(machine.speed_of(9) == 0.75);
  CHECK(machine.speed_of(16) == 1);
  CHECK(machine.speed_of_all(16) == Approx(8 + 7 * 0.5 + 0.75));
  CHECK(machine_from_json(to_json(machine), "m.json") == machine);
  for (const json& bad :
       {json(3), json::array({{{"rank", 32}, {"speed", 1}}}), json::array({{{"rank", 0}, {"speed", 1e-300}}}),
        json::array({{{"rank", 0}}}), json::array({{{"speed", 1}}}), json::array({{{"node", 4}, {"speed", 1}}}),
        json::array({{{"rank", 0}, {"speed", 1}, {"node", 0}}})}) {
    text["ranks"] = bad;
    CHECK_THAT(refusal_of(text), Contains("ranks"));
  }
}

TEST_CASE("ranks may be counted, with rates of their own", "[machine]") {
  json text = description();
  text["ranks"] = {{{"count", 3}},
                   {{"count", 5}, {"flops_per_s", {{"bf16", 300e12}, {"fp32", 2.2e12}}}},
                   {{"count", 2}, {"speed", 2}}};
  const Machine machine = read(text);
  CHECK(machine.speeds.size() == 10);
  CHECK(machine.speed_of(2) == 1);
  CHECK(machine.speed_of(3) == Approx(0.74).epsilon(0.02));
  CHECK(machine.speed_of(7) == machine.speed_of(3));
  CHECK(machine.speed_of(9) == 2);
  CHECK(machine.speed_of(10) == 1);
  CHECK(machine_from_json(to_json(machine), "m.json") == machine);
  const auto says = [&text](const json& entry) {
    text["ranks"] = entry;
    return refusal_of(text);
  };
  const json whole = json::object({{"count", 32}});
  CHECK_THAT(says({{{"count", 33}}}), Contains("ranks[0].count"));
  CHECK_THAT(says(json::array({whole, {{"count", 1}}})), Contains("ranks[1].count") && Contains("all 32 ranks"));
  CHECK_THAT(says({{{"count", 0}}}), Contains("ranks[0].count"));
  CHECK_THAT(says({{{"count", 2}, {"speed", -1}}}), Contains("ranks[0].speed"));
  CHECK_THAT(says({{{"count", 2}, {"rank", 1}}}), Contains("ranks[0]") && Contains("rank"));
  for (const char* const who : {"count", "rank", "node"}) {
    CHECK_THAT(says({{{who, 1}, {"speed", 0.5}, {"flops_per_s", {{"bf16", 300e12}}}}}),
               Contains("ranks[0].flops_per_s stands beside speed"));
  }
  CHECK_THAT(says({{{"count", 2}, {"flops_per_s", {{"bf16", 0}}}}}), Contains("bf16"));
  CHECK_THAT(says({{{"count", 2}, {"flops_per_s", json::object()}}}), Contains("states no rate"));
  CHECK_THAT(says({{{"count", 2}, {"flops_per_s", {{"fp64", 1}}}}}), Contains("fp64, which the machine has not"));
  CHECK_THAT(says({{{"count", 2}, {"flops_per_s", {{"bf16", 200e12}, {"fp32", 3e12}}}}}),
             Contains("from 0.50 to 1.00 of the machine's rates"));
}

TEST_CASE("a rate follows its curve", "[machine]") {
  const RateCurve curve = read(description()).rates_of(DType::fp32, Pass::forward).full;
  CHECK(curve.at(128) == 1e12);
  CHECK(curve.at(256) == Approx(2e12));
  CHECK(curve.at(512) == Approx(3e12));
  CHECK(curve.at(4096) == 3e12);
  CHECK(curve.at(64) == Approx(0.5e12));
}

TEST_CASE("curves are by launch where a description says so, and by tile in older ones", "[machine]") {
  json text = description();
  CHECK(read(text).rates_by == RatesBy::tile);
  for (const auto& [word, by] : {std::pair("tile", RatesBy::tile), {"launch", RatesBy::launch}}) {
    text["rates_by"] = word;
    text["tiles"]["forward_launch_s"] = 4e-6;
    const Machine machine = read(text);
    CHECK(machine.rates_by == by);
    CHECK(machine.tiles.launch_s == std::array{4e-6, 0.0});
    CHECK(machine_from_json(to_json(machine), "m.json") == machine);
  }
  text["rates_by"] = "step";
  CHECK_THAT(refusal_of(text), Contains("m.json") && Contains("rates_by is 'step'") && Contains("\"launch\""));
}

TEST_CASE("what a tile costs follows its head dimension", "[machine]") {
  const TileCosts tiles = read(description()).tiles;
  CHECK(tiles.block == 48);
  CHECK(tiles.seconds(Pass::forward, 16) == 2e-6);
  CHECK(tiles.seconds(Pass::forward, 32) == 2e-6);
  CHECK(tiles.seconds(Pass::forward, 48) == Approx(3e-6));
  CHECK(tiles.seconds(Pass::forward, 128) == Approx(8e-6));
  CHECK(tiles.seconds(Pass::backward, 32) == 9e-6);
  CHECK(TileCosts().seconds(Pass::backward, 64) == 0);
  CHECK(tiles.pair_s == std::array{0.0, 3e-10});
}

TEST_CASE("few queries have rates of their own, forward and where they are stated", "[machine]") {
  const FewQueries few = read(description()).few;
  REQUIRE(few.of(DType::bf16, Pass::forward, 8) != nullptr);
  CHECK(few.of(DType::bf16, Pass::forward, 1)->flops_per_s == 9e11);
  CHECK(few.of(DType::bf16, Pass::forward, 1)->key_bytes_per_s.at(1e7) == Approx(3e9));
  CHECK(few.of(DType::fp32, Pass::forward, 1)->key_bytes_per_s.at(1e7) == 5e9);
  CHECK(few.of(DType::bf16, Pass::forward, 9) == nullptr);
  CHECK(few.of(DType::bf16, Pass::backward, 1) == nullptr);
  CHECK(few.of(DType::fp16, Pass::forward, 1) == nullptr);
  CHECK(FewQueries().of(DType::bf16, Pass::forward, 1) == nullptr);
}

TEST_CASE("ranks on cores share their node's memory and cores, and fill one node before the next", "[machine]") {
  json text = description();
  text["cores"] = 64;
  const Machine machine = read(text);
  REQUIRE(machine.nodes == 4);
  CHECK(machine.memory_of_rank(32) == 10'000'000'000);
  CHECK(machine.memory_of_rank(8) == 10'000'000'000);
  CHECK(machine.memory_of_rank(2) == 40'000'000'000);
  CHECK(machine.memory_of_rank(1) == 80'000'000'000);
  CHECK(machine.threads_of_rank(32) == 8);
  CHECK(machine.threads_of_rank(8) == 8);
  CHECK(machine.threads_of_rank(2) == 32);
  text["nodes"] = 1;
  CHECK(read(text).threads_of_rank(32) == 2);
}

TEST_CASE("every field that is missing is named", "[machine]") {
  const std::string path =
      GENERATE("/nodes", "/ranks_per_node", "/near", "/near/bytes_per_s", "/near/latency_s", "/far", "/far/bytes_per_s",
               "/far/latency_s", "/far/per", "/flops_per_s", "/flops_per_s/fp16/forward/partial",
               "/few_queries/queries", "/few_queries/bf16/flops_per_s", "/memory_bytes", "/cores");
  json text = description();
  const json::json_pointer pointer(path);
  text[pointer.parent_pointer()].erase(pointer.back());
  std::string dotted = path.substr(1);
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  CHECK_THAT(refusal_of(text), Contains(dotted + " is missing") && Contains("m.json"));
}

TEST_CASE("values out of range or of the wrong type are named", "[machine]") {
  const auto [path, value] = GENERATE(table<std::string, json>({
      {"/nodes", 0},
      {"/nodes", -1},
      {"/nodes", 1.5},
      {"/nodes", "4"},
      {"/nodes", nullptr},
      {"/nodes", 1e300},
      {"/ranks_per_node", -8},
      {"/near", 3},
      {"/near/bytes_per_s", 0},
      {"/near/bytes_per_s", -1e9},
      {"/near/latency_s", -1e-6},
      {"/far/per", "rack"},
      {"/far/per", 3},
      {"/flops_per_s", 4e12},
      {"/flops_per_s/bf16", -4e12},
      {"/flops_per_s/bf16", "fast"},
      {"/flops_per_s/bf16", json::array()},
      {"/flops_per_s/fp32/0", 3},
      {"/flops_per_s/fp32/1/0", 128},
      {"/flops_per_s/fp32/1/1", -1},
      {"/tiles", 48},
      {"/tiles/block", 0},
      {"/tiles/forward_s", json::array()},
      {"/tiles/forward_s/1/0", 32},
      {"/tiles/backward_s/0/1", 0},
      {"/tiles/backward_pair_s", -1e-9},
      {"/few_queries", 8},
      {"/few_queries/queries", 0},
      {"/few_queries/fp32/flops_per_s", 0},
      {"/few_queries/fp32/key_bytes_per_s", -1},
      {"/memory_bytes", -1},
      {"/memory_bytes", 0.5},
      {"/cores", -2},
      {"/sources", 3},
      {"/schema_version", 2},
  }));
  json text = description();
  text[json::json_pointer(path)] = value;
  INFO(path << " = " << value.dump());
  std::string dotted = path.substr(1);
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  const std::string field = dotted.substr(0, dotted.find_first_of("0123456789", dotted.find("fp32") + 4));
  CHECK_THAT(refusal_of(text), Contains(field.substr(0, field.find_last_not_of('.') + 1)) && Contains("m.json"));
}

TEST_CASE("fields that nobody knows are named", "[machine]") {
  const std::string path =
      GENERATE("/speed", "/near/per", "/far/speed", "/flops_per_s/fp8", "/flops_per_s/fp16/both",
               "/flops_per_s/fp16/forward/causal", "/tiles/backward", "/few_queries/fp8", "/few_queries/fp32/backward");
  json text = description();
  text[json::json_pointer(path)] = 1;
  CHECK_THAT(refusal_of(text), Contains("is unknown") && Contains(path.substr(path.rfind('/') + 1)));
}

TEST_CASE("what is not JSON is refused in one line", "[machine]") {
  const std::string text =
      GENERATE("", "{", "[]", "3", "{\"nodes\": 1e999}", "{\"nodes\": 1, \"nodes\": 2}", "\xff\xfe");
  const std::string message = refusal([&] { machine_from_json(text, "m.json"); });
  CHECK_THAT(message, Contains("m.json"));
  CHECK_THAT(message, !Contains("\n"));
}

TEST_CASE("machines are written as they were read", "[machine]") {
  Machine machine = read(description());
  CHECK(machine_from_json(to_json(machine), "again") == machine);
  CHECK(machine.describes("reference"));
  machine.backend = "kokkos";
  CHECK(machine_from_json(to_json(machine), "again") == machine);
  CHECK(machine.describes("kokkos"));
  CHECK_FALSE(machine.describes("reference"));
}

TEST_CASE("links are those of the transport that was measured", "[machine]") {
  json text = description();
  text["transports"] = {{"ucx", {{"near", {{"bytes_per_s", 3e9}, {"latency_s", 1e-6}}}}},
                        {"nccl",
                         {{"near", {{"bytes_per_s", 4e11}, {"latency_s", 2e-6}}},
                          {"far", {{"bytes_per_s", 5e10}, {"latency_s", 3e-6}, {"per", "rank"}}}}}};
  const Machine machine = read(text), ucx = machine.over("ucx"), nccl = machine.over("nccl");
  CHECK(machine_from_json(to_json(machine), "again") == machine);
  CHECK(ucx.near == Link{3e9, 1e-6});
  CHECK(ucx.far == machine.far);
  CHECK(ucx.far_owner == machine.far_owner);
  CHECK(nccl.far == Link{5e10, 3e-6});
  CHECK(nccl.far_owner == LinkOwner::rank);
  CHECK(machine.over("inproc") == machine);

  const auto [path, words] =
      GENERATE(table<std::string, std::string>({{"/transports/ucx/near/bytes_per_s", "transports.ucx.near.bytes_per_s"},
                                                {"/transports/nccl/far/per", "transports.nccl.far.per"},
                                                {"/transports/ucx/speed", "speed is unknown"}}));
  text[json::json_pointer(path)] = -1;
  CHECK_THAT(refusal_of(text), Contains(words) && Contains("m.json"));
}

TEST_CASE("every built-in machine says where its figures are from", "[machine]") {
  CHECK(built_in_machines() == std::vector<std::string>{"a100-pcie-ethernet", "a100-pcie-roce", "dgx-a100x2",
                                                        "dgx-h100x8", "ethernet-h100x64"});
  for (const std::string& name : built_in_machines()) {
    const Machine machine = find_machine(name);
    CHECK(machine.name == name);
    CHECK(machine.measured.empty());
    for (const char* field : {"nodes", "near.bytes_per_s", "far.bytes_per_s", "near.latency_s", "far.latency_s",
                              "flops_per_s.fp32", "memory_bytes"}) {
      CHECK(machine.sources.contains(field));
    }
    CHECK(machine_from_json(to_json(machine), "again") == machine);
    CHECK_NOTHROW(machine.rates_of(DType::bf16, Pass::backward));
  }
}

TEST_CASE("a machine that is neither known nor a file is refused with those that are", "[machine]") {
  const std::string message = refusal([] { find_machine("dgx-b100"); });
  CHECK_THAT(message, Contains("dgx-b100") && Contains("dgx-h100x8") && Contains("this"));
  CHECK_THAT(refusal([] { find_machine("/"); }), Contains("'/'"));
  for (const char* const device : {"/dev/null", "/dev/zero"}) {
    CHECK_THAT(refusal([&] { find_machine(device); }), Contains("neither a regular file nor a pipe"));
  }
}

TEST_CASE("measured rates that fall from a tile to a larger one are averaged", "[machine]") {
  const auto rates = [](const std::vector<double>& measured, std::vector<TileCosts::Point> costs = {}) {
    Measurements measurements;
    measurements.tiles.points[Pass::forward] = std::move(costs);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
        measurements.kernels.push_back({DType::fp32, Pass::forward, coverage, std::ldexp(64, static_cast<int>(i)), 64,
                                        1, measured[i], measured[i]});
      }
    }
    const Machine machine = describe(measurements);
    std::vector<double> curve;
    for (const auto& point : machine.rates_of(DType::fp32, Pass::forward).full.points) {
      curve.push_back(point.flops_per_s);
    }
    return curve;
  };
  CHECK(rates({1, 2, 2, 5}) == std::vector<double>{1, 2, 2, 5});
  CHECK(rates({1, 4, 2, 5}) == std::vector<double>{1, 3, 3, 5});
  CHECK(rates({3, 6, 4, 2, 9}) == std::vector<double>{3, 4, 4, 4, 9});
  CHECK(rates({4, 5, 0.5, 0.5}) == std::vector<double>{2.5, 2.5, 2.5, 2.5});
  // The rate of tiles too small to have been measured is nobody's measurement.
  CHECK(rates({4, 2}, {{64, 0}}) == std::vector<double>{3, 3, 3});
}

TEST_CASE("what was measured stands in the description, the rest stays nominal", "[machine]") {
  Measurements measurements;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    measurements.kernels.push_back({DType::fp32, pass, Coverage::full, 512, 64, 2, 80e9, 80e9});
    measurements.kernels.push_back({DType::fp32, pass, Coverage::full, 512, 64, 3, 80e9, 80e9});
    measurements.kernels.push_back({DType::fp32, pass, Coverage::full, 64, 64, 1, 10e9, 10e9});
    measurements.kernels.push_back({DType::fp32, pass, Coverage::partial, 64, 64, 1, 5e9, 10e9});
    measurements.kernels.push_back({DType::bf16, pass, Coverage::full, 64, 64, 1, 1e9, 1e9});
  }
  measurements.tiles.block = 16;
  measurements.tiles.points[Pass::backward] = {{64, 0.25}};
  measurements.few = {8, {std::nullopt, FewQueries::Rates{3e9, {{{0, 2e9}}}}}};
  measurements.copies = {7e9, 3e-6};
  measurements.memory_bytes_per_s = 9e9;
  measurements.what = "a backend";
  measurements.when = utc_now();
  const Machine machine = describe(measurements), nominal = nominal_machine();
  CHECK(machine.rates_of(DType::fp32, Pass::forward).full.at(64) == 10e9);
  CHECK(machine.rates_of(DType::fp32, Pass::forward).full.at(32) == 5e9);
  CHECK(machine.rates_of(DType::fp32, Pass::forward).full.at(600) == 40e9);
  CHECK(machine.rates_of(DType::fp32, Pass::forward).partial.at(600) == 10e9);
  // Where it is known what a tile takes besides, that is no part of its rate, and smaller tiles are as fast.
  CHECK(machine.rates_of(DType::fp32, Pass::backward).full.at(64) == 10e9 / 0.75);
  CHECK(machine.rates_of(DType::fp32, Pass::backward).full.at(32) == 10e9 / 0.75);
  CHECK(machine.tiles == measurements.tiles);
  CHECK(machine.rates_by == RatesBy::launch);
  CHECK(machine.few == measurements.few);
  // So is what pairs take besides their products.
  measurements.kernels = {{DType::fp32, Pass::forward, Coverage::full, 64, 64, 1, 10e9, 10e9, 1e6}};
  for (const auto& [pass, coverage] : {std::pair(Pass::forward, Coverage::partial),
                                       {Pass::backward, Coverage::full},
                                       {Pass::backward, Coverage::partial}}) {
    measurements.kernels.push_back({DType::fp32, pass, coverage, 64, 64, 1, 10e9, 10e9, 1e6});
  }
  measurements.tiles.pair_s = {0.2e-6, 2e-6};
  const Machine with_pairs = describe(measurements);
  CHECK(with_pairs.rates_of(DType::fp32, Pass::forward).full.at(64) == Approx(10e9 / 0.8));
  CHECK(with_pairs.rates_of(DType::fp32, Pass::backward).full.at(64) == 10e9 / 0.5);  // half of a time at most
  // Half a measurement is none.
  CHECK(machine.rates_of(DType::bf16, Pass::forward) == nominal.rates_of(DType::bf16, Pass::forward));
  CHECK(machine.near == Link{7e9, 3e-6});
  CHECK(machine.far == nominal.far);
  CHECK(machine.cores == nominal.cores);
  CHECK_THAT(describe_age(machine), Contains("less than an hour ago"));
  CHECK_THAT(machine.sources.at("near"), Contains("a backend"));
  // Of processes links are measured, and no copies between threads.
  measurements.copies = {};
  measurements.transports["ucx"] = {Link{2e9, 1e-6}, std::nullopt};
  const Machine of_processes = describe(measurements);
  CHECK(of_processes.near == nominal.near);
  CHECK(of_processes.sources.at("near") == nominal.sources.at("near"));
  CHECK(of_processes.over("ucx").near == Link{2e9, 1e-6});
  CHECK(of_processes.over("ucx").speeds.empty());
  // Of ranks that differ, each has the median of its tiles; threads of one process do not.
  const std::vector<std::vector<double>> seconds = {{0.5, 1.9, 0.6}, {1.0, 2.0, 1.25}, {2.5, 2.1, 1.4}};
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    measurements.kernels[i].by_rank = seconds[i];
    measurements.kernels[i].seconds = 1;
  }
  const Machine unequal = describe(measurements);
  CHECK(unequal.over("ucx").speeds == std::vector<double>{1, 0.5, 0.8});
  CHECK(unequal.speeds.empty());
  CHECK(unequal.over("inproc").speeds.empty());
  CHECK(machine_from_json(to_json(unequal), "again") == unequal);
  for (auto& kernel : measurements.kernels) kernel.by_rank = {1, 0.95, 1.05};
  CHECK(describe(measurements).over("ucx").speeds.empty());
  CHECK(machine_from_json(to_json(machine), "again") == machine);
}
