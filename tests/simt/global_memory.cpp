#include "simt/global_memory.hpp"

#include <string>

namespace simt {
namespace {

constexpr std::size_t cell_bytes = 2;  // the smallest element that kernels write on its own

}  // namespace

void GlobalMemory::add(const void* begin, std::size_t bytes) {
  arrays_[reinterpret_cast<std::uintptr_t>(begin)] = {bytes, std::vector<Cell>((bytes + cell_bytes - 1) / cell_bytes)};
}

void GlobalMemory::remove(const void* begin) noexcept { arrays_.erase(reinterpret_cast<std::uintptr_t>(begin)); }

void GlobalMemory::touch(const void* begin, std::size_t bytes, Access access, const Toucher& who, const char* what) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  if (address % bytes != 0) throw Error(std::string(what) + ": misaligned global address");
  auto found = arrays_.upper_bound(address);
  if (found == arrays_.begin() || address + bytes > (--found)->first + found->second.bytes) {
    throw Error(std::string(what) + ": global address outside every array");
  }
  const std::size_t offset = address - found->first;
  for (std::size_t i = offset / cell_bytes; i < (offset + bytes + cell_bytes - 1) / cell_bytes; ++i) {
    Cell& cell = found->second.cells[i];
    if (cell.who.launch != who.launch) cell = {};
    const bool others = cell.access != Access::none && (cell.several || cell.who != who);
    const bool agree = cell.access == access && access != Access::write;
    if (others && !agree) {
      throw Error("race: " + std::string(what) + " touches global byte " + std::to_string(i * cell_bytes) +
                  " of an array of " + std::to_string(found->second.bytes) + ", which thread " +
                  std::to_string(cell.who.thread) + " of block " + std::to_string(cell.who.block) +
                  " used without being ordered with it");
    }
    cell.several = others;
    cell.who = who;
    cell.access = std::max(cell.access, access);
  }
}

GlobalMemory& global_memory() {
  static thread_local GlobalMemory memory;
  return memory;
}

}  // namespace simt
