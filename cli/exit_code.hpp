#pragma once
/// What the process ends with when an error ended it.

#include "distattn/error.hpp"

namespace distattn::cli {

constexpr int usage_exit = 2, environment_exit = 3;

constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return usage_exit;
    case ErrorKind::environment:
    case ErrorKind::peer:
      return environment_exit;
    case ErrorKind::timeout:
      return 4;
    case ErrorKind::interrupted:
      return 130;
  }
  return environment_exit;
}

}  // namespace distattn::cli
