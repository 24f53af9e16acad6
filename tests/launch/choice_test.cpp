/// Which launcher's variables count, and what they say.

#include <map>

#include "backends/launch/choice.hpp"
#include "backends/launch/rank_variables.hpp"
#include "backends/pmix/mpirun.hpp"
#include "backends/registration.hpp"
#include "backends/torchrun/torchrun.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::backends::launch;
using distattn::backends::launchers;

namespace {

using Values = std::map<std::string, std::string>;

Variables variables(Values values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

Values both(Values one, const Values& other) {
  one.insert(other.begin(), other.end());
  return one;
}

Values of_slurm(int tasks) {
  return {{"SLURM_JOB_ID", "812"},  {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "0"},    {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "0"},    {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
          {"SLURM_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", std::to_string(tasks)}};
}

Values of_mpirun(int ranks) {
  return {{"PMIX_NAMESPACE", "451543041"},
          {"PMIX_RANK", "0"},
          {"OMPI_COMM_WORLD_RANK", "0"},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)},
          {"OMPI_MCA_orte_precondition_transports", "00afeea0a6866730-2a63501a7daa2750"}};
}

const Values address{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};

std::string chosen(const Values& values) { return choose(launchers(), variables(values)).bootstrap; }

}  // namespace

TEST_CASE("a launcher of one process is none, one of several is taken") {
  CHECK(chosen({}) == "inproc");
  CHECK(chosen(of_slurm(1)) == "inproc");
  CHECK(chosen(of_slurm(2)) == "slurm");
  CHECK(chosen(of_mpirun(1)) == "inproc");
  CHECK(chosen(of_mpirun(2)) == "pmix");
  CHECK(chosen(both(address, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})) == "inproc");
  CHECK(chosen(both(address, {{"RANK", "0"}, {"WORLD_SIZE", "2"}})) == "torchrun");
  CHECK(started_by(launchers(), variables(of_slurm(1))).bootstrap == "slurm");
}

TEST_CASE("of launchers within each other the innermost counts") {
  CHECK(chosen(both(of_mpirun(4), of_slurm(1))) == "pmix");  // mpirun within a step of one task a node
  CHECK(*choose(launchers(), variables(both(of_mpirun(4), of_slurm(1)))).place == Place{0, 4, 0, 4});
  Values step = both(of_slurm(3), of_mpirun(1));  // srun --mpi=pmix from the shell of an mpirun
  step["PMIX_NAMESPACE"] = "slurm.pmix.812.0";
  CHECK(choose(launchers(), variables(step)).place->size == 3);
  const Values torch = both(address, {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  CHECK(chosen(both(torch, of_mpirun(2))) == "pmix");
  CHECK(chosen(both(both(torch, {{"TORCHELASTIC_RUN_ID", "none"}}), of_mpirun(2))) == "torchrun");
  CHECK(chosen(both(both(address, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), of_slurm(2))) == "slurm");
  const Values one_of_script = both(address, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(chosen(both(one_of_script, of_slurm(2))) == "slurm");
  CHECK(chosen(both(both(one_of_script, {{"TORCHELASTIC_RUN_ID", "none"}}), of_slurm(2))) == "inproc");
  CHECK(chosen(both(one_of_script, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})) == "torchrun");
}

TEST_CASE("a rank and a size of anybody's are enough where there is an address") {
  for (const auto& [rank, size] : Values{{"PMI_RANK", "PMI_SIZE"},
                                         {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                         {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                         {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                         {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
                                         {"PALS_RANKID", "PALS_SIZE"},
                                         {"JOB_COMPLETION_INDEX", "WORLD_SIZE"}}) {
    CAPTURE(rank);
    const Values two{{rank, "1"}, {size, "2"}};
    CHECK(chosen(both(two, address)) == "torchrun");
    CHECK_THROWS_WITH(chosen(two), contains_text(rank + "=1 of " + size + "=2"));
    CHECK_THROWS_WITH(chosen(both({{rank, "2"}, {size, "2"}}, address)), contains_text("cannot be (the variables of"));
  }
  CHECK(chosen({{"JOB_COMPLETION_INDEX", "3"}}) == "inproc");
  CHECK(chosen({{"RANK", "high"}}) == "inproc");
  CHECK_THROWS_WITH(chosen(both(address, {{"WORLD_SIZE", "2"}})), contains_text("RANK is not set"));
}

TEST_CASE("a rank of nobody knows how many runs alone, and it is told") {
  const auto lone = [](const Values& values) { return rank_without_size(variables(values)); };
  for (const char* rank : {"RANK", "PMI_RANK", "PALS_RANKID", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK"}) {
    CAPTURE(rank);
    CHECK(lone({{rank, "0"}}).find(std::string(rank) + "=0 is set, but ") == 0);
    CHECK(chosen({{rank, "0"}}) == "inproc");
    CHECK(choose(launchers(), variables({{rank, "0"}})).why.find(lone({{rank, "0"}})) != std::string::npos);
  }
  CHECK(lone({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).empty());
  CHECK(lone({{"RANK", "high"}}).empty());
  CHECK(lone({{"JOB_COMPLETION_INDEX", "3"}}).empty());
  CHECK(lone({}).empty());
}

TEST_CASE("of srun's variables those that follow from others may be missing") {
  for (const char* name : {"SLURM_NODEID", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "SLURM_NODELIST", "SLURM_JOB_ID"}) {
    CAPTURE(name);
    Values one = of_slurm(1);
    one.erase(name);
    CHECK(chosen(one) == "inproc");
    CHECK(started_by(launchers(), variables(one)).bootstrap == "slurm");
  }
  Values node = of_slurm(3);
  node["SLURM_PROCID"] = "2";
  node["SLURM_NNODES"] = "1";
  for (const char* name : {"SLURM_NODEID", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "SLURM_NODELIST"}) node.erase(name);
  CHECK(*choose(launchers(), variables(node)).place == Place{2, 3, 2, 3});
  Values spread = of_slurm(3);
  spread["SLURM_PROCID"] = "2";
  spread.erase("SLURM_NODEID");
  CHECK(*choose(launchers(), variables(spread)).place == Place{2, 3, 0, 0});
  spread.erase("SLURM_NODELIST");
  CHECK_THROWS_WITH(chosen(spread), contains_text("SLURM_NODELIST is not set"));
}

TEST_CASE("who shares a node is known later where nobody says it") {
  const auto place = [](const Values& values) { return torchrun_environment(variables(both(values, address)))->place; };
  CHECK(place({{"RANK", "1"}, {"WORLD_SIZE", "2"}}) == Place{1, 2, 0, 0});
  CHECK(place({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}) == Place{1, 2, 1, 0});
  CHECK(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) == Place{0, 1, 0, 1});
  Values local = both({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, address);
  CHECK_FALSE(torchrun_environment(variables(local))->one_node());
  local["MASTER_ADDR"] = "127.0.0.1";
  CHECK(torchrun_environment(variables(local))->one_node());
}

TEST_CASE("mpirun's variables say enough for ranks of one node, and where the host of rank 0 is known") {
  const auto found = mpirun_environment(variables(of_mpirun(2)));
  REQUIRE(found);
  CHECK(found->place == Place{0, 2, 0, 2});
  REQUIRE(found->token);
  CHECK(found->token->find("2a63501a7daa2750") != std::string::npos);
  Values two_nodes = of_mpirun(2);
  two_nodes.insert_or_assign("OMPI_COMM_WORLD_LOCAL_SIZE", std::string(1, '1'));
  CHECK_FALSE(mpirun_environment(variables(two_nodes)));
  two_nodes["DISTATTN_ADDRESS"] = "head";
  CHECK(mpirun_environment(variables(two_nodes))->host == "head");
}

TEST_CASE("a bootstrap says itself whether it started this process, and how near its launcher is") {
  static constexpr auto started = [](const Variables& all) {
    return all("KITE_RANK") ? Started{"a kite", Place{1, 2, 0, 0}} : by_nobody("no kite");
  };
  const LauncherVariables kite{.bootstrap = "kite",
                               .names = {"KITE_RANK", "KITE_STRING"},
                               .marks = {"KITE_RANK"},
                               .nearness = [](const Variables&) { return Nearness::server; },
                               .started = [](const Variables& all) { return started(all); }};
  Launchers with_kite = launchers();
  with_kite.push_back(&kite);
  const Values flying{{"KITE_RANK", "1"}, {"KITE_STRING", "long"}};
  CHECK(choose(with_kite, variables(flying)).bootstrap == "kite");
  CHECK(choose(with_kite, variables(both(flying, of_slurm(2)))).bootstrap == "kite");
  CHECK(choose(with_kite, variables(both(flying, of_mpirun(2)))).bootstrap ==
        "pmix");  // as near, and first in the list
  CHECK(choose(launchers(), variables(flying)).bootstrap == "inproc");
  CHECK(seen_variables(with_kite, variables(flying)).back() ==
        std::pair<std::string, std::string>("KITE_STRING", "long"));
  CHECK(candidates(with_kite, variables({})).back().bootstrap == "inproc");
}

TEST_CASE("secrets are counted, not shown") {
  const auto seen = seen_variables(launchers(), variables({{"DISTATTN_TOKEN", "open sesame"}, {"RANK", "3"}}));
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == std::pair<std::string, std::string>("RANK", "3"));
  CHECK(seen[1].second == "(a secret of 11 characters)");
}
