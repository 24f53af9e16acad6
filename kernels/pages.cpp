#include "kernels/pages.hpp"

#include <algorithm>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace distattn::kernels {

namespace {

constexpr std::size_t small_page = 4096, large_page = std::size_t{1} << 21;

}  // namespace

void FreePages::operator()(std::byte* memory) const { std::free(memory); }

Pages allocate_pages(std::size_t bytes) {
  const std::size_t page = bytes < large_page ? small_page : large_page;
  const std::size_t rounded = (std::max(bytes, std::size_t{1}) + page - 1) / page * page;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page, rounded));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (memory != nullptr && page == large_page) madvise(memory, rounded, MADV_HUGEPAGE);  // a wish: small ones do too
#endif
  return Pages(memory);
}

}  // namespace distattn::kernels
