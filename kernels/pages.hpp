#pragma once
/// Memory on boundaries of pages.

#include <cstddef>
#include <memory>

namespace distattn::kernels {

struct FreePages {
  void operator()(std::byte* memory) const;
};
using Pages = std::unique_ptr<std::byte[], FreePages>;

/// At least `bytes`, of whole pages; large pages where the system has some: what streams through many arrays at once
/// runs out of small pages' translations. Null if there is not so much.
Pages allocate_pages(std::size_t bytes);

}  // namespace distattn::kernels
