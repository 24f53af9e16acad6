#pragma once
/// What some kernels compute and others do not. A problem needs features, a device has features, and a problem that
/// needs one that the device lacks is refused. So every device refuses a new feature until it says that it has it.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/scores.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

struct Problem;

/// A new feature is named here and has a row in the table of features.cpp.
enum class Feature : std::uint8_t {
  fp64,
  fp32,
  bf16,
  fp16,
  softcap,
  sink_logits,
  alibi,
  max_logit,
  dropout,
  shared_kv
};
inline constexpr int feature_count = 10;

/// "fp32", …
const char* name_of(Feature feature);

/// A set of features.
class Features {
 public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> some) {
    for (const Feature feature : some) bits_ |= bit(feature);
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Feature feature) const { return (bits_ & bit(feature)) != 0; }
  constexpr Features without(Features others) const { return Features(bits_ & ~others.bits_); }
  constexpr Features with(Features others) const { return Features(bits_ | others.bits_); }
  constexpr Features among(Features others) const { return Features(bits_ & others.bits_); }
  friend constexpr bool operator==(Features, Features) = default;

  /// In the order of Feature.
  std::vector<Feature> list() const;

 private:
  constexpr explicit Features(std::uint32_t bits) : bits_(bits) {}
  static constexpr std::uint32_t bit(Feature feature) { return std::uint32_t{1} << static_cast<int>(feature); }

  std::uint32_t bits_ = 0;
};

/// The feature of computing with elements of a type.
constexpr Feature feature_of(DType dtype) {
  return dtype == DType::fp64   ? Feature::fp64
         : dtype == DType::fp32 ? Feature::fp32
         : dtype == DType::bf16 ? Feature::bf16
                                : Feature::fp16;
}
inline constexpr Features element_types{Feature::fp64, Feature::fp32, Feature::bf16, Feature::fp16};
/// Those of scores that all kernels on hosts compute. A feature that some of them lack stays outside.
inline constexpr Features score_features{Feature::softcap, Feature::sink_logits, Feature::alibi, Feature::max_logit,
                                         Feature::dropout};
Features all_features();

/// What tiles with such elements and scores need, apart from a bias.
Features features_of(DType dtype, const Scores& scores);
/// What a problem needs.
Features features_of(const Problem& problem);
/// Changes the problem into one that needs the feature.
void ask_for(Feature feature, Problem& problem);

/// "bf16 and fp16"
std::string names_of(Features features);
/// Why `who`, which has the features `has`, does not compute what needs `needed`, as "reference computes fp32 and bf16,
/// not fp64"; empty if it does.
std::string why_missing(std::string_view who, Features has, Features needed);

}  // namespace distattn
#pragma GCC visibility pop
