#include <list>
#include <mutex>
#include <utility>

#include "distattn/files.hpp"

namespace distattn {
namespace {

struct Discards {
  std::mutex mutex;
  std::list<std::function<void()>> list;
};

Discards& discards() {
  static auto* const instance = new Discards;  // never destroyed: whoever waits for signals outlives main's statics
  return *instance;
}

}  // namespace

std::unique_lock<std::mutex> discard_partial_files() {
  std::unique_lock lock(discards().mutex);
  for (auto last = discards().list.rbegin(); last != discards().list.rend(); ++last) (*last)();
  return lock;
}

std::unique_lock<std::mutex> hold_partial_files() { return std::unique_lock(discards().mutex); }

Discardable::Discardable(const std::function<void()>& make, std::function<void()> remove) {
  const auto lock = hold_partial_files();
  make();
  place_ = discards().list.insert(discards().list.end(), std::move(remove));
}

Discardable::~Discardable() {
  const auto lock = hold_partial_files();
  discards().list.erase(place_);
}

}  // namespace distattn
