#pragma once
/// What an action says when it throws.

#include <functional>
#include <string>

#include "distattn/error.hpp"

namespace distattn::test {

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace distattn::test
