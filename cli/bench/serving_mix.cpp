#include "cli/bench/serving_mix.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "cli/options/values.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"

namespace distattn::cli {
namespace {

constexpr std::string_view by_name = "mix:";
constexpr std::int64_t longest = 64 * 1024, most_requests = 4096;

/// 32 lengths from 1 to 64K, each longer than the one before by the same factor.
std::vector<MixedRequest> growing_lengths(std::int64_t queries) {
  constexpr int count = 32;
  std::vector<MixedRequest> requests;
  for (int i = 0; i < count; ++i) {
    const auto keys = std::llround(std::pow(static_cast<double>(longest), i / double{count - 1}));
    requests.push_back({keys, std::min<std::int64_t>(keys, queries)});
  }
  return requests;
}

struct NamedMix {
  const char* name;
  std::vector<MixedRequest> (*requests)();
};
constexpr std::array mixes{
    NamedMix{"decode",
             [] {
               return std::vector<MixedRequest>(4, {longest, 1});
             }},
    NamedMix{"lengths", [] { return growing_lengths(1); }},
    NamedMix{"drafts", [] { return growing_lengths(8); }},
    NamedMix{"prefill",
             [] {
               return std::vector<MixedRequest>{{longest, 256}};
             }},
};

std::vector<MixedRequest> requests_in(std::string_view option, const std::string& path) {
  const auto wrong = [&](const std::string& why) {
    refuse(
        fmt::format("{} {} ({}): give a list of requests, as [{{\"keys\": 4096, \"queries\": 1}}]", option, path, why));
  };
  const nlohmann::json list = nlohmann::json::parse(read_file(path), nullptr, false);
  if (list.is_discarded()) wrong("no JSON");
  if (!list.is_array() || list.empty()) wrong("no list of requests");
  std::vector<MixedRequest> requests;
  for (const nlohmann::json& item : list) {
    const auto number = [&](const char* name, std::int64_t otherwise) -> std::int64_t {
      if (!item.contains(name) && otherwise > 0) return otherwise;
      if (!item.contains(name)) wrong(fmt::format("request {} has no {}", requests.size(), name));
      const nlohmann::json& value = item[name];
      if (!value.is_number_integer() || value.get<std::int64_t>() < 1) {
        wrong(fmt::format("request {} has {} {}, no whole number from 1 on", requests.size(), name,
                          value.is_number() ? value.dump() : value.type_name()));
      }
      return value.get<std::int64_t>();
    };
    if (!item.is_object()) wrong(fmt::format("request {} is no object", requests.size()));
    for (const auto& [name, value] : item.items()) {
      if (name != "keys" && name != "queries") wrong(fmt::format("request {} has a {}", requests.size(), name));
    }
    const MixedRequest request{number("keys", 0), number("queries", 1)};
    if (request.queries > request.keys) wrong(fmt::format("request {} has more queries than keys", requests.size()));
    requests.push_back(request);
    if (std::ssize(requests) > most_requests) wrong(fmt::format("more than {} requests", most_requests));
  }
  return requests;
}

}  // namespace

std::vector<std::string> mix_names() {
  std::vector<std::string> names;
  for (const NamedMix& mix : mixes) names.push_back(std::string(by_name) + mix.name);
  return names;
}

ServingMix parse_mix(std::string_view option, std::string_view text) {
  if (!text.starts_with(by_name)) return {std::string(text), requests_in(option, std::string(text))};
  for (const NamedMix& mix : mixes) {
    if (text.substr(by_name.size()) == mix.name) return {mix.name, mix.requests()};
  }
  refuse(fmt::format("{} {} (no such mix): choose {}, or a file", option, text, fmt::join(mix_names(), ", ")));
}

}  // namespace distattn::cli
