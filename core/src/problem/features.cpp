#include "distattn/features.hpp"

#include <array>

#include <fmt/core.h>

#include "distattn/problem.hpp"

namespace distattn {
namespace {

struct Description {
  const char* name;
  bool (*is_needed)(const Problem& problem);
  void (*ask)(Problem& problem);
};

template <DType dtype>
constexpr Description elements{name_of(dtype), [](const Problem& problem) { return problem.dtype == dtype; },
                               [](Problem& problem) { problem.dtype = dtype; }};

constexpr Description softcap{"softcap", [](const Problem& problem) { return problem.scores.softcap != 0; },
                              [](Problem& problem) { problem.scores.softcap = 2; }};

constexpr Description sink_logits{"sink logits", [](const Problem& problem) { return problem.scores.sink_logits; },
                                  [](Problem& problem) { problem.scores.sink_logits = true; }};

constexpr Description alibi{"alibi", [](const Problem& problem) { return !problem.alibi_slopes.empty(); },
                            [](Problem& problem) { problem.alibi_slopes = standard_alibi_slopes(problem.heads); }};
constexpr Description max_logit{"max_logit", [](const Problem& problem) { return problem.scores.max_logit; },
                                [](Problem& problem) { problem.scores.max_logit = true; }};

constexpr Description dropout{"dropout", [](const Problem& problem) { return problem.scores.dropout != 0; },
                              [](Problem& problem) { problem.scores.dropout = 0.5; }};

constexpr Description shared_kv{"shared_kv", [](const Problem& problem) { return problem.shared_kv; },
                                [](Problem& problem) { problem.shared_kv = true; }};

/// By Feature.
constexpr std::array descriptions{elements<DType::fp64>,
                                  elements<DType::fp32>,
                                  elements<DType::bf16>,
                                  elements<DType::fp16>,
                                  softcap,
                                  sink_logits,
                                  alibi,
                                  max_logit,
                                  dropout,
                                  shared_kv};
static_assert(descriptions.size() == feature_count);

const Description& description_of(Feature feature) { return descriptions.at(index(feature)); }

}  // namespace

const char* name_of(Feature feature) { return description_of(feature).name; }

std::vector<Feature> Features::list() const {
  std::vector<Feature> all;
  for (int i = 0; i < feature_count; ++i) {
    if (has(static_cast<Feature>(i))) all.push_back(static_cast<Feature>(i));
  }
  return all;
}

Features all_features() {
  Features all;
  for (int i = 0; i < feature_count; ++i) all = all.with({static_cast<Feature>(i)});
  return all;
}

Features features_of(DType dtype, const Scores& scores) {
  Problem tile;
  tile.dtype = dtype;
  tile.scores = scores;
  return features_of(tile);
}

Features features_of(const Problem& problem) {
  Features needed;
  for (const Feature feature : all_features().list()) {
    if (description_of(feature).is_needed(problem)) needed = needed.with({feature});
  }
  return needed;
}

void ask_for(Feature feature, Problem& problem) { description_of(feature).ask(problem); }

std::string names_of(Features features) {
  const std::vector<Feature> all = features.list();
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += i == 0 ? "" : i + 1 < all.size() ? ", " : " and ";
    text += name_of(all[i]);
  }
  return text;
}

std::string why_missing(std::string_view who, Features has, Features needed) {
  const Features missing = needed.without(has), others = missing.without(element_types);
  if (missing.empty()) return "";
  if (!others.empty()) return fmt::format("{} computes no {}", who, names_of(others));
  return fmt::format("{} computes {}, not {}", who, names_of(has.among(element_types)), names_of(missing));
}

}  // namespace distattn
