#include "cli/run/agreement.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "cli/options/problem_lists.hpp"
#include "cli/terminal/output.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/version.hpp"

namespace distattn::cli {
namespace {

/// FNV-1a.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    constexpr std::uint64_t prime = 0x100000001b3;
    for (const std::byte byte : bytes) value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * prime;
  }
  void add(std::int64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

void add_tokens(Hash& hash, const Inputs& inputs, Tensor tensor) {
  constexpr std::int64_t looks = 16;
  const std::int64_t heads = inputs.heads(tensor), tokens = inputs.tokens(tensor), batch = inputs.shape().batch;
  std::vector<std::byte> row(index(heads * inputs.dim(tensor)) * size_of(DType::fp64));
  for (std::int64_t look = 0; look < looks; ++look) {
    inputs.read(tensor, look % batch, look * (tokens - 1) / (looks - 1), 0, heads, DType::fp64, row.data());
    hash.add(row);
  }
}

/// What `say` returns, or why it threw, as text.
std::string said_or_refused(const std::function<Json()>& say) {
  Json answer;
  try {
    answer = {{"said", say()}};
  } catch (const Error& error) {
    answer = {{"kind", static_cast<int>(error.kind())}, {"refused", error.what()}};
  }
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Throws what was thrown there.
Json unless_refused(std::string_view answer) {
  const Json json = Json::parse(answer);
  if (!json.contains("refused")) return json["said"];
  throw Error(static_cast<ErrorKind>(json["kind"].get<int>()), json["refused"].get<std::string>());
}

/// A field that ranks tell each other: enumerations as numbers, nothing as null.
template <class T>
Json written(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(field);
  } else {
    return field;
  }
}
template <class T>
Json written(const std::optional<T>& field) {
  return field ? written(*field) : Json();
}
template <class T>
void read(const Json& json, T& field) {
  if constexpr (std::is_enum_v<T>) {
    field = static_cast<T>(json.get<int>());
  } else {
    json.get_to(field);
  }
}
template <class T>
void read(const Json& json, std::optional<T>& field) {
  if (!json.is_null()) read(json, field.emplace());
}

}  // namespace

void agree_on_command(World& world, std::string_view options) {
  world.agree("its version", fmt::format("{}, commit {}", version(), commit()));
  world.agree("its options", options);
}

void agree_on_problem(World& world, const Problem& problem) {
  if (world.in_process()) return;
  Hash mask;
  for (const Band& band : bands_of(problem.mask)) {
    for (const std::int64_t bound : {band.q0, band.q1, band.k0, band.k1, band.lo, band.hi}) mask.add(bound);
  }
  std::string scores;
  const Scores resolved = problem.resolved_scores();
  fields_of(resolved, [&](const char* name, const auto& value) { scores += fmt::format(", {} {}", name, value); });
  Hash slopes;
  slopes.add(std::as_bytes(std::span(problem.alibi_slopes)));
  scores += ", slopes " + slopes.text();
  world.agree("the problem",
              fmt::format("{}, values of {}{}, wire {}{}, mask {}", describe(problem), problem.value_dim,
                          problem.shared_kv ? " in keys" : "", name_of(problem.wire_type()), scores, mask.text()));
}

void agree_on_inputs(World& world, const Inputs& inputs, bool with_backward) {
  if (world.in_process()) return;
  Hash hash;
  for (const Tensor tensor : {Tensor::q, Tensor::k, Tensor::v}) add_tokens(hash, inputs, tensor);
  if (with_backward) add_tokens(hash, inputs, Tensor::d_o);
  hash.add(std::as_bytes(std::span(inputs.sink_logits())));
  world.agree("the values of its input", hash.text());
  world.agree("its dropout seed", fmt::format("{}", inputs.dropout_seed()));
}

void agree_on_bytes(World& world, std::string_view what, std::span<const std::byte> bytes) {
  if (world.in_process()) return;
  Hash hash;
  hash.add(bytes);
  world.agree(what, fmt::format("{} bytes, hash {}", bytes.size(), hash.text()));
}

void agree_on_programs(World& world, const AttentionPlan& plan) {
  if (world.in_process()) return;
  world.agree("its program", fmt::format("{:016x}", plan.fingerprint()));
}

std::string said_by_first(World& world, const std::function<std::string()>& say) {
  if (world.in_process()) return say();
  std::string answer;
  if (world.first() == 0) answer = said_or_refused([&] { return Json(say()); });
  return unless_refused(world.broadcast(answer)).get<std::string>();
}

Decision decided_by_first(World& world, const std::function<Decision()>& decide) {
  if (world.in_process()) return decide();
  const auto write = [](const auto& decision) {
    Json fields = Json::object();
    fields_of(decision, [&fields](const char* name, const auto& field) { fields[name] = written(field); });
    return fields;
  };
  const auto read_into = [](const Json& fields, auto& decision) {
    fields_of(decision, [&fields](const char* name, auto& field) { read(fields.at(name), field); });
  };
  const std::string text = said_by_first(world, [&] {
    const Decision decision = decide();
    const auto* const requests = std::get_if<std::vector<ScheduleRequest>>(&decision);
    Json all = requests == nullptr ? write(std::get<WhyNot>(decision)) : Json::array();
    for (std::size_t i = 0; requests != nullptr && i < requests->size(); ++i) all.push_back(write((*requests)[i]));
    return all.dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  const Json all = Json::parse(text);
  if (all.is_object()) {
    WhyNot why;
    read_into(all, why);
    return why;
  }
  std::vector<ScheduleRequest> requests(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) read_into(all[i], requests[i]);
  return requests;
}

void decided_by_all(World& world, const std::function<void()>& decide) {
  if (world.in_process()) return decide();
  const std::string mine = said_or_refused([&] {
    decide();
    return Json(true);
  });
  for (const auto& each : world.all_gather(std::as_bytes(std::span(mine)))) {
    unless_refused({reinterpret_cast<const char*>(each.data()), each.size()});
  }
}

}  // namespace distattn::cli
