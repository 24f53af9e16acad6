#include <cstring>
#include <string>

#include "catch.hpp"
#include "distattn/inproc.hpp"

using namespace distattn;
using Catch::Matchers::Contains;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ignore(Transport&) {}

}  // namespace

TEST_CASE("allgather gives every rank everybody's bytes, by rank, of any length, again and again", "[bootstrap]") {
  for (const int ranks : {1, 2, 5}) {
    run_ranks(ranks, [ranks](Rank rank, Transport& transport, Bootstrap& bootstrap) {
      ignore(transport);
      if (bootstrap.rank() != rank || bootstrap.size() != ranks) throw Error(ErrorKind::peer, "ranks are mixed up");
      for (int round = 0; round < 200; ++round) {
        const auto word = [round](int of) {
          return std::string(static_cast<std::size_t>(of), 'a') + std::to_string(round);
        };
        const auto all = bootstrap.all_gather(bytes_of(word(rank)));
        for (int other = 0; other < ranks; ++other) {
          if (text_of(all.at(static_cast<std::size_t>(other))) != word(other)) {
            throw Error(ErrorKind::peer, "round " + std::to_string(round) + " mixed up rank " + std::to_string(other));
          }
        }
        bootstrap.barrier();
      }
    });
  }
}

TEST_CASE("a rank that fails ends the collectives of all others with its error", "[bootstrap]") {
  const auto body = [](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    ignore(transport);
    bootstrap.barrier();
    if (rank == 1) throw Error(ErrorKind::environment, "rank 1 has no disk");
    bootstrap.barrier();
  };
  REQUIRE_THROWS_WITH(run_ranks(3, body), Contains("rank 1 has no disk"));
}
