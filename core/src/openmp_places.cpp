#include "core/src/openmp_places.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "distattn/index.hpp"

namespace distattn {
namespace {

template <class Function>
Function* loaded(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

/// Without zero words at the end.
ProcessorSet trimmed(ProcessorSet set) {
  while (!set.empty() && set.back() == 0) set.pop_back();
  return set;
}

}  // namespace

std::vector<ProcessorSet> openmp_places() {
  // LLVM's has the functions of GCC's, too, but begins to bind when it is asked.
  if (loaded<void()>("GOMP_parallel") == nullptr || loaded<void()>("__kmpc_fork_call") != nullptr) return {};
  auto* const count = loaded<int()>("omp_get_num_places");
  auto* const size_of = loaded<int(int)>("omp_get_place_num_procs");
  auto* const list = loaded<void(int, int*)>("omp_get_place_proc_ids");
  if (count == nullptr || size_of == nullptr || list == nullptr) return {};
  std::vector<ProcessorSet> places(index(std::max(count(), 0)));
  for (std::size_t place = 0; place < places.size(); ++place) {
    const int number = static_cast<int>(place);
    std::vector<int> processors(index(std::max(size_of(number), 0)));
    list(number, processors.data());
    for (const int processor : processors) {
      const std::size_t word = index(processor) / 64;
      if (places[place].size() <= word) places[place].resize(word + 1, 0);
      places[place][word] |= std::uint64_t{1} << (index(processor) % 64);
    }
  }
  return places;
}

ProcessorSet beyond_place(const ProcessorSet& bound, const std::vector<ProcessorSet>& places) {
  const ProcessorSet own = trimmed(bound);
  if (std::find(places.begin(), places.end(), own) == places.end()) return bound;
  ProcessorSet all;
  for (const ProcessorSet& place : places) {
    if (all.size() < place.size()) all.resize(place.size(), 0);
    for (std::size_t word = 0; word < place.size(); ++word) all[word] |= place[word];
  }
  return all;
}

}  // namespace distattn
