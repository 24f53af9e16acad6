/// The C API's communicator of processes, two of them: what a launcher says of their places on the machine.

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "attend.hpp"
#include "catch.hpp"
#include "core/c_api/handles.hpp"

using namespace distattn::test;

namespace {

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

/// As torchrun would, but for the order on the machine, which is not that of ranks.
int describe_by_torchrun() {
  const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  set("RANK", std::to_string(rank));
  set("WORLD_SIZE", "2");
  set("LOCAL_RANK", std::to_string(1 - rank));
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(20000 + ::getppid() % 10000));
  set("DISTATTN_TOKEN", "launched_test " + std::to_string(::getppid()));
  return rank;
}

distattn_comm* join(const char* bootstrap = "torchrun") {
  distattn_launch launch = DISTATTN_LAUNCH_INIT;
  launch.bootstrap = bootstrap;
  launch.transport = "ucx";
  distattn_comm* comm = nullptr;
  const distattn_status status = distattn_comm_from_launcher(&launch, &comm);
  INFO(message());
  REQUIRE(status == DISTATTN_OK);
  return comm;
}

}  // namespace

TEST_CASE("A rank's place on its machine is the launcher's, also in a group") {
  const int rank = describe_by_torchrun();
  distattn_comm* comm = join();
  CHECK(distattn_comm_rank(comm) == rank);
  CHECK(comm->local_rank == 1 - rank);

  distattn_comm* alone = nullptr;
  REQUIRE(distattn_comm_subgroup(comm, &rank, 1, &alone) == DISTATTN_OK);
  CHECK(distattn_comm_rank(alone) == 0);
  CHECK(alone->local_rank == 1 - rank);
  CHECK(alone->local_ranks == 2);
  distattn_comm_free(alone);
  distattn_comm_free(comm);
}

TEST_CASE("A rank that will not call ends another process that waits for it") {
  const int rank = describe_by_torchrun();
  distattn_comm* comm = join();
  distattn_options options = options_for("ring");
  if (rank == 0) {
    CHECK(attend(&options, comm) == DISTATTN_INTERRUPTED);
    CHECK_THAT(message(), contains_text("rank 1") && contains_text("out of tensors"));
  } else {
    const distattn_problem problem = small_problem();
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    CHECK(distattn_comm_abort(comm, "out of tensors") == DISTATTN_OK);
    distattn_attention_free(attention);
  }
  distattn_comm_free(comm);
}

TEST_CASE("Ranks that a server started meet again, beside an earlier communicator, after it, and after its failure") {
  distattn_options options = options_for("ring");
  distattn_comm *const first = join("pmix"), *const beside = join("pmix");
  CHECK(attend(&options, beside) == DISTATTN_OK);
  CHECK(attend(&options, first) == DISTATTN_OK);
  distattn_comm_abort(beside, "the ranks begin anew");
  CHECK(attend(&options, beside) == DISTATTN_INTERRUPTED);
  distattn_comm_free(beside);
  distattn_comm_free(first);
  distattn_comm* const after = join("pmix");
  CHECK(attend(&options, after) == DISTATTN_OK);
  distattn_comm_free(after);
}
