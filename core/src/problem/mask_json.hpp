#pragma once
/// Bands in JSON: {"q": [0, 512], "k": [0, 512], "diff": [0, null]}; null is unbounded.

#include <nlohmann/json.hpp>
#include <string>

#include "distattn/band.hpp"

namespace distattn {

/// Throws Error(usage) naming the field under `path`.
Band band_from_json(const nlohmann::json& object, const std::string& origin, const std::string& path);
nlohmann::ordered_json band_to_json(const Band& band);

}  // namespace distattn
