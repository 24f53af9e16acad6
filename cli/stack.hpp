#pragma once
/// Stacks that libraries can live with, whatever ulimit -s says.

#include <functional>

namespace distattn::cli {

/// What `body` returns, called with a stack that is large enough, as those of threads are that anybody starts from then
/// on. Throws Error(environment) where no such stack can be had.
int with_enough_stack(const std::function<int()>& body);

}  // namespace distattn::cli
