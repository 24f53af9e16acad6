#include "core/src/problem/mask_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"
#include "distattn/mask.hpp"

namespace distattn {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// An integer; one that no position reaches counts as no bound, whatever its size, as sys.maxsize does.
std::int64_t bound(const json& value, std::int64_t unlimited, JsonFields& band, const char* name) {
  if (value.is_null()) return unlimited;
  if (value.is_number_unsigned()) {
    return static_cast<std::int64_t>(std::min(value.get<std::uint64_t>(), std::uint64_t{unbounded}));
  }
  if (value.is_number_integer()) return std::max(value.get<std::int64_t>(), -unbounded);
  constexpr auto largest = static_cast<double>(unbounded);  // past 64 bits nlohmann reads a double
  const double real = value.is_number_float() ? value.get<double>() : 0;
  if (std::abs(real) < largest) band.fail(name, "is not a pair of positions", "write two integers, null for no bound");
  return real < 0 ? -unbounded : unbounded;
}

std::pair<std::int64_t, std::int64_t> range(JsonFields& band, const char* name) {
  const json& value = band.at(name);
  if (!value.is_array() || value.size() != 2) band.fail(name, "is not a pair", "write it as [begin, end]");
  return {bound(value[0], -unbounded, band, name), bound(value[1], unbounded, band, name)};
}

ordered_json range_to_json(std::int64_t begin, std::int64_t end) {
  ordered_json pair = {nullptr, nullptr};
  if (begin != -unbounded) pair[0] = begin;
  if (end != unbounded) pair[1] = end;
  return pair;
}

}  // namespace

Band band_from_json(const json& object, const std::string& origin, const std::string& path) {
  JsonFields fields(object, origin, path);
  Band band;
  std::tie(band.q0, band.q1) = range(fields, "q");
  std::tie(band.k0, band.k1) = range(fields, "k");
  std::tie(band.lo, band.hi) = range(fields, "diff");
  fields.finish();
  return band;
}

ordered_json band_to_json(const Band& band) {
  return {{"q", range_to_json(band.q0, band.q1)},
          {"k", range_to_json(band.k0, band.k1)},
          {"diff", range_to_json(band.lo, band.hi)}};
}

Mask mask_from_json(std::string_view text, const std::string& origin) {
  const json list = parse_json(text, origin);
  if (!list.is_array()) {
    refuse(
        fmt::format("{} is no list of bands (a mask file holds one): write [{{\"q\":[0,512],\"k\":[0,512],"
                    "\"diff\":[0,null]}}]",
                    origin));
  }
  std::vector<Band> bands;
  for (const json& object : list) {
    const std::string path = fmt::format("[{}]", bands.size());
    const Band band = band_from_json(object, origin, path);
    if (band.q0 > band.q1 || band.k0 > band.k1 || band.lo > band.hi)
      refuse(fmt::format("{} has a range that runs backwards ({}): write the lower bound first", path, origin));
    bands.push_back(band);
  }
  Mask mask = band_mask(std::move(bands));
  mask.name = origin;
  return mask;
}

}  // namespace distattn
