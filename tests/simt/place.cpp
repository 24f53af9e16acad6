#include "simt/place.hpp"

#include <cstdlib>
#include <new>

#include "simt/machine.hpp"
#include "simt/queue.hpp"

namespace simt {

std::shared_ptr<std::byte> kernel_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{128};
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(::operator new(bytes, alignment)), [](std::byte* freed) {
    global_memory().remove(freed);
    ::operator delete(freed, alignment);
  });
  global_memory().add(memory.get(), bytes);
  return memory;
}

bool has_hopper_units() { return true; }

int run_kernels(std::uint64_t seed, const std::function<int(distattn::kernels::cuda::Stream)>& start) {
  Immediate queue(seed);
  return start(&queue);
}

std::uint64_t bank_conflicts() { return machine().bank_conflicts(); }

}  // namespace simt
