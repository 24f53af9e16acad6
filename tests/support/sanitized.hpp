#pragma once
/// What tests leave out where sanitizers look at every access and take ten times as long.

#include <cstddef>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif
#else
inline constexpr bool is_sanitized = false;
#endif

/// The cases, which go the same ways with other sizes; under sanitizers one of every four, or of every `group`.
template <class Case>
std::vector<Case> cases_to_run(std::vector<Case> cases, std::size_t group = 4) {
  if (!is_sanitized) return cases;
  std::vector<Case> some;
  for (std::size_t i = 0; i < cases.size(); i += group) some.push_back(std::move(cases[i]));
  return some;
}
