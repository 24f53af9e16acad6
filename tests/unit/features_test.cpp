/// What problems need of kernels.

#include "distattn/features.hpp"

#include "catch.hpp"
#include "distattn/problem.hpp"

using namespace distattn;

TEST_CASE("a problem that is asked for a feature needs it, and each feature has a name of its own") {
  std::vector<std::string> names;
  for (const Feature feature : all_features().list()) {
    Problem problem;
    problem.head_dim = problem.value_dim = 64;
    ask_for(feature, problem);
    CHECK(features_of(problem).has(feature));
    CHECK(std::find(names.begin(), names.end(), name_of(feature)) == names.end());
    names.emplace_back(name_of(feature));
  }
  CHECK(names.size() == feature_count);
}

TEST_CASE("a problem as usual needs its element type alone, with its defaults or without") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    Problem problem;
    problem.head_dim = problem.value_dim = 64;
    problem.dtype = dtype;
    CHECK(features_of(problem) == Features{feature_of(dtype)});
    CHECK(features_of(dtype, problem.resolved_scores()) == Features{feature_of(dtype)});
    CHECK(std::string(name_of(feature_of(dtype))) == name_of(dtype));
  }
}

TEST_CASE("sets of features") {
  constexpr Features some{Feature::fp32, Feature::fp16}, other{Feature::fp16, Feature::bf16};
  CHECK(some.without(other) == Features{Feature::fp32});
  CHECK(some.among(other) == Features{Feature::fp16});
  CHECK(some.with(other).list() == std::vector{Feature::fp32, Feature::bf16, Feature::fp16});
  CHECK((Features().empty() && !some.empty()));
  CHECK(names_of(all_features().among(element_types)) == "fp64, fp32, bf16 and fp16");
}

TEST_CASE("what is missing is named, with what there is") {
  constexpr Features has{Feature::fp32, Feature::bf16, Feature::fp16};
  CHECK(why_missing("it", has, {Feature::bf16}).empty());
  CHECK(why_missing("it", has, {}).empty());
  CHECK(why_missing("it", has, {Feature::fp64}) == "it computes fp32, bf16 and fp16, not fp64");
}
