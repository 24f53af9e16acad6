#pragma once
/// What a step does, in the words of pictures and traces.

#include <cstdint>
#include <string>
#include <vector>

#include "distattn/schedule.hpp"

namespace distattn {

struct DrawnTile {
  Value query, key;
  Rank query_owner = 0, key_owner = 0;
  std::int64_t pairs = 0;
};

/// Everything that a step sends to one rank.
struct DrawnMessage {
  Rank to = 0;
  std::int64_t bytes = 0;
  std::vector<Value> values;
  /// "kv(g0, 5), kv(g0, 6)"
  std::string names() const;
};

class StepContents {
 public:
  /// Keeps a reference to `schedule`.
  explicit StepContents(const Schedule& schedule);

  const Step& step(Rank rank, StepId id) const;
  std::vector<DrawnTile> tiles(Rank rank, StepId id) const;
  std::vector<DrawnMessage> messages(Rank rank, StepId id) const;
  /// The exchange of `message.to` that receives it, or -1.
  std::ptrdiff_t receiver(Rank from, StepId id, Rank to) const;
  /// "step 3: 4 tiles", "step 2: sends 2 values, 1.5 MiB; receives 1 value"
  std::string title(Rank rank, StepId id) const;

 private:
  const BufferDecl& decl(Rank rank, BufferId buffer) const;

  const Schedule& schedule_;
  Tiles tiles_;
};

}  // namespace distattn
