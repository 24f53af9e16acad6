#include "cli/tools/documents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/tools/embedded.hpp"
#include "core/src/problem/splitmix.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

/// Lengths from … to-1 have a share of the documents, in millionths.
struct Bin {
  std::int64_t from, to, share;
};

const nlohmann::ordered_json& histograms() {
  static const auto all = nlohmann::ordered_json::parse(*tools::embedded_file("document-lengths"));
  return all;
}

std::vector<Bin> bins_of(std::string_view corpus) {
  const std::vector<std::string> names = document_corpora();
  const auto name = std::find(names.begin(), names.end(), corpus);
  if (name == names.end())
    refuse(
        fmt::format("documents {} are not known (there are {}): choose one of these", corpus, fmt::join(names, ", ")));
  std::vector<Bin> bins;
  for (const auto& bin : histograms()[*name])
    bins.push_back({bin[0].get<std::int64_t>(), bin[1].get<std::int64_t>(), std::llround(bin[2].get<double>() * 1e6)});
  return bins;
}

class Lengths {
 public:
  Lengths(std::vector<Bin> bins, std::uint64_t seed) : bins_(std::move(bins)), state_(splitmix::mix(seed)) {
    for (const Bin& bin : bins_) all_ += bin.share;
  }

  std::int64_t draw() {
    std::int64_t share = below(all_);
    const auto bin = std::find_if(bins_.begin(), bins_.end(), [&](const Bin& b) { return (share -= b.share) < 0; });
    if (bin->from == 0) return 1 + below(bin->to - 1);
    // 1/x is uniform between 1/to and 1/from; in integers, so that no platform rounds otherwise.
    constexpr std::int64_t fine = 1024;
    return bin->from * bin->to * fine / (bin->from * fine + 1 + below((bin->to - bin->from) * fine));
  }

 private:
  /// 0 … n-1; n is so far below 2^64 that the remainder's unevenness does not show.
  std::int64_t below(std::int64_t n) {
    state_ += splitmix::golden;
    return static_cast<std::int64_t>(splitmix::mix(state_) % static_cast<std::uint64_t>(n));
  }

  std::vector<Bin> bins_;
  std::int64_t all_ = 0;
  std::uint64_t state_;
};

}  // namespace

std::vector<std::string> document_corpora() {
  std::vector<std::string> names;
  for (const auto& [name, bins] : histograms().items())
    if (bins.is_array()) names.push_back(name);
  return names;
}

std::vector<std::int64_t> draw_documents(std::string_view corpus, std::int64_t tokens, std::uint64_t seed) {
  if (tokens < 1) refuse(fmt::format("documents for {} tokens (a sequence has at least one): give 1 or more", tokens));
  Lengths lengths(bins_of(corpus), seed);
  std::vector<std::int64_t> ends{0};
  while (ends.back() < tokens) ends.push_back(ends.back() + std::min(lengths.draw(), tokens - ends.back()));
  return ends;
}

}  // namespace distattn
