#include <list>
#include <mutex>
#include <utility>

#include "distattn/files.hpp"

namespace distattn {
namespace {

struct Removals {
  std::mutex mutex;
  std::list<std::function<void()>> list;
};

Removals& removals() {
  static auto* const instance = new Removals;  // never destroyed: whoever waits for signals outlives main's statics
  return *instance;
}

}  // namespace

std::unique_lock<std::mutex> remove_temporary_files() {
  std::unique_lock lock(removals().mutex);
  for (auto last = removals().list.rbegin(); last != removals().list.rend(); ++last) (*last)();
  return lock;
}

std::unique_lock<std::mutex> hold_temporary_files() { return std::unique_lock(removals().mutex); }

TemporaryFile::TemporaryFile(const std::function<void()>& make, std::function<void()> remove) {
  const auto lock = hold_temporary_files();
  make();
  place_ = removals().list.insert(removals().list.end(), std::move(remove));
}

TemporaryFile::~TemporaryFile() {
  const auto lock = hold_temporary_files();
  removals().list.erase(place_);
}

}  // namespace distattn
