#pragma once
/// Mixes of requests to serve, by name or from a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distattn::cli {

struct MixedRequest {
  std::int64_t keys = 1, queries = 1;
};

struct ServingMix {
  std::string name;
  std::vector<MixedRequest> requests;
};

/// Words for mixes that are known by name.
std::vector<std::string> mix_names();
/// "mix:NAME", or a file with a JSON list of requests: [{"keys": 4096, "queries": 1}, ...]. Throws Error(usage) that
/// names `option`.
ServingMix parse_mix(std::string_view option, std::string_view text);

}  // namespace distattn::cli
