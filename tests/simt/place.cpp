#include "simt/place.hpp"

#include <cstdlib>

#include "simt/machine.hpp"
#include "simt/queue.hpp"

namespace simt {

std::shared_ptr<std::byte> kernel_memory(std::size_t bytes) {
  std::shared_ptr<std::byte> memory(new std::byte[bytes], [](std::byte* freed) {
    global_memory().remove(freed);
    delete[] freed;
  });
  global_memory().add(memory.get(), bytes);
  return memory;
}

int architecture() { return 80; }

int run_kernels(std::uint64_t seed, const std::function<int(distattn::kernels::cuda::Stream)>& start) {
  Immediate queue(seed);
  return start(&queue);
}

std::uint64_t bank_conflicts() { return machine().bank_conflicts(); }

}  // namespace simt
