/// The pieces that a launch is made of, each by itself.

#include <map>

#include "backends/launch/launcher.hpp"
#include "backends/launch/liveness.hpp"
#include "backends/launch/sha256.hpp"
#include "backends/slurm/slurm.hpp"
#include "backends/torchrun/torchrun.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::backends::launch;

namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[static_cast<unsigned>(byte) >> shift & 15];
  }
  return text;
}

Digest digest_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Variables variables_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

std::map<std::string, std::string> torchrun_values() {
  return {{"RANK", "3"},           {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};
}

std::map<std::string, std::string> slurm_values() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_JOB_ID", "812"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
          {"SLURM_STEP_NODELIST", "node[07-08]"}};
}

}  // namespace

TEST_CASE("SHA-256 and its HMAC give the published digests") {
  CHECK(hex(digest_of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(digest_of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string_view data = "what do ya want for nothing?";  // RFC 4231, case 2
  CHECK(hex(hmac_sha256("Jefe", std::as_bytes(std::span(data)))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string key(131, '\xaa');  // case 6: a key longer than a block
  const std::string_view longer = "Test Using Larger Than Block-Size Key - Hash Key First";
  CHECK(hex(hmac_sha256(key, std::as_bytes(std::span(longer)))) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("whoever keeps others waiting is found through those who wait") {
  const auto start = Clock::now();
  Liveness liveness(4, start);
  liveness.heard(0, {3, 1, 7}, start);
  liveness.heard(1, {3, 2, 7}, start);
  liveness.heard(2, {2, -1, 6}, start);
  CHECK(liveness.culprit(0) == 2);
  CHECK(liveness.culprit(3) == 3);
  CHECK(liveness.culprit(0, 3) == 2);
  CHECK(liveness.culprit(0, 1) == 0);   // it waits for the one that asks
  liveness.heard(2, {2, 0, 6}, start);  // a ring: the rank that was asked about
  CHECK(liveness.culprit(1) == 1);
}

TEST_CASE("working counts as progress, waiting does not, what arrives does") {
  const auto start = Clock::now();
  const auto later = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  Liveness liveness(2, start);
  liveness.heard(1, {0, -1, 1}, later(1));
  CHECK(liveness.progress(1) == later(1));
  liveness.heard(1, {0, 0, 1}, later(2));
  CHECK(liveness.progress(1) == later(1));
  liveness.heard(1, {0, 0, 2}, later(3));
  CHECK(liveness.progress(1) == later(3));
}

TEST_CASE("torchrun's variables say who a process is") {
  CHECK(!torchrun_environment(variables_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  auto values = torchrun_values();
  const auto plain = torchrun_environment(variables_of(values));
  REQUIRE(plain);
  CHECK(plain->place.rank == 3);
  CHECK(plain->place.size == 4);
  CHECK(plain->place.local_rank == 1);
  CHECK(plain->place.local_size == 2);
  CHECK(plain->host == "head");
  CHECK(plain->ports.front() == 29500);
  CHECK(!plain->token);

  values["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  values["TORCHELASTIC_RUN_ID"] = "job-17";
  const auto agent = torchrun_environment(variables_of(values));
  CHECK(agent->ports.front() == 29501);
  REQUIRE(agent->token);
  CHECK(agent->token->find("job-17") != std::string::npos);

  values["TORCHELASTIC_RUN_ID"] = "none";
  CHECK(!torchrun_environment(variables_of(values))->token);
  values["DISTATTN_TOKEN"] = "secret";
  values["DISTATTN_PORT"] = "4000";
  CHECK(torchrun_environment(variables_of(values))->token == "secret");
  CHECK(torchrun_environment(variables_of(values))->ports == std::vector{4000});
  values["DISTATTN_PORT"] = "65536";
  CHECK_THROWS_WITH(torchrun_environment(variables_of(values)), contains_text("DISTATTN_PORT=65536 is not a port"));
  values.erase("DISTATTN_PORT");
  values["MASTER_PORT"] = "65535";
  CHECK_THROWS_WITH(torchrun_environment(variables_of(values)), contains_text("MASTER_PORT+1=65536 is not a port"));
  for (const std::string port : {"0", "65536", "99999"}) {
    values["MASTER_PORT"] = port;
    values["TORCHELASTIC_USE_AGENT_STORE"] = "False";
    CHECK_THROWS_WITH(torchrun_environment(variables_of(values)),
                      contains_text("MASTER_PORT=" + port + " is not a port"));
  }
}

TEST_CASE("workers that torchrun's agent started at once know it by the folder of their errors") {
  auto values = torchrun_values();
  const auto start = [&](const char* file) {
    values["TORCHELASTIC_ERROR_FILE"] = file;
    return torchrun_environment(variables_of(values))->start;
  };
  const std::string first = start("/tmp/torchelastic_x/none_y/attempt_0/1/error.json");
  CHECK(first == "/tmp/torchelastic_x/none_y/attempt_0");
  CHECK(start("/tmp/torchelastic_x/none_y/attempt_1/1/error.json") != first);
  for (const char* of_all : {"", "error.json", "/tmp/error.json", "/1", "/tmp/0/error.json"})
    CHECK(start(of_all).empty());
}

TEST_CASE("srun's variables say who a process is") {
  CHECK(!slurm_environment(variables_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})));
  auto values = slurm_values();
  const auto found = slurm_environment(variables_of(values));
  REQUIRE(found);
  CHECK(found->place.rank == 5);
  CHECK(found->place.local_size == 3);
  CHECK(found->host == "node07");
  CHECK(found->token == "slurm 812.0");
  values["SLURM_STEP_NODELIST"] = "login,node[1-2]";
  values["SLURM_STEP_TASKS_PER_NODE"] = "3(x2),1";
  CHECK(slurm_environment(variables_of(values))->host == "login");
  for (const auto& [list, first] : std::map<std::string, std::string>{{"rack[0-1]_blade[3-4,9]", "rack0_blade3"},
                                                                      {"gpu[08,11-12]-ib,node[1-2]", "gpu08-ib"},
                                                                      {"node[7]", "node7"},
                                                                      {"n1,n[2-3]", "n1"}}) {
    values["SLURM_STEP_NODELIST"] = list;
    CHECK(slurm_environment(variables_of(values))->host == first);
  }
  CHECK(slurm_environment(variables_of(values))->place.local_size == 3);
}

TEST_CASE("a step of srun is not its allocation") {
  auto values = slurm_values();
  values["SLURM_STEP_TASKS_PER_NODE"] = "1,2";
  values["SLURM_STEP_NUM_TASKS"] = "3";
  values["SLURM_PROCID"] = "2";
  CHECK(slurm_environment(variables_of(values))->place.size == 3);
  values.erase("SLURM_NTASKS");
  CHECK(slurm_environment(variables_of(values)));
  for (const char* interactive_or_batch : {"4294967290", "4294967291"}) {
    values["SLURM_STEP_ID"] = interactive_or_batch;
    CHECK_FALSE(slurm_environment(variables_of(values)));
  }
}

TEST_CASE("DISTATTN_PORT is a port, or 0 for any") {
  CHECK(own_port(variables_of({{"DISTATTN_PORT", "0"}})) == 0);
  CHECK(own_port(variables_of({{"DISTATTN_PORT", "65535"}})) == 65535);
  CHECK_THROWS_WITH(own_port(variables_of({{"DISTATTN_PORT", "70000"}})),
                    contains_text("DISTATTN_PORT=70000 is not a port"));
}

TEST_CASE("variables that make no sense are named") {
  const auto message = [](std::map<std::string, std::string> values, const char* name, const char* value) {
    values[name] = value;
    try {
      torchrun_environment(variables_of(values));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message(torchrun_values(), "RANK", "three").find("RANK=three") == 0);
  CHECK(message(torchrun_values(), "WORLD_SIZE", "-4").find("WORLD_SIZE=-4") == 0);
  CHECK(message(torchrun_values(), "RANK", "4").find("rank 4 of 4") == 0);
}
