#include "simt/global_memory.hpp"

#include <bit>
#include <string>

namespace simt {
namespace {

constexpr std::size_t cell_bytes = 2;  // the smallest element that kernels write on its own

}  // namespace

void GlobalMemory::add(const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::scoped_lock lock(mutex_);
  arrays_[address] = {address, bytes, std::vector<Cell>((bytes + cell_bytes - 1) / cell_bytes)};
}

void GlobalMemory::remove(const void* begin) noexcept {
  const std::scoped_lock lock(mutex_);
  arrays_.erase(reinterpret_cast<std::uintptr_t>(begin));
  last_ = nullptr;
}

GlobalMemory::Array& GlobalMemory::array_at(std::uintptr_t address, std::size_t bytes, const char* what) {
  const auto holds = [&](const Array& array) {
    return array.begin <= address && address + bytes <= array.begin + array.bytes;
  };
  if (last_ != nullptr && holds(*last_)) return *last_;
  const auto after = arrays_.upper_bound(address);
  if (after == arrays_.begin() || !holds(std::prev(after)->second)) {
    throw Error(std::string(what) + ": global address outside every array");
  }
  last_ = &std::prev(after)->second;
  return *last_;
}

bool GlobalMemory::has(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::scoped_lock lock(mutex_);
  const auto behind = arrays_.upper_bound(address);
  if (behind == arrays_.begin()) return false;
  const Array& array = std::prev(behind)->second;
  return address - array.begin < array.bytes;
}

void GlobalMemory::touch(const void* begin, std::size_t bytes, Access access, const Toucher& who, const char* what) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  // Remainders of numbers that are no constants take longer than the rest.
  const bool aligned = std::has_single_bit(bytes) ? (address & (bytes - 1)) == 0 : address % bytes == 0;
  if (!aligned) throw Error(std::string(what) + ": misaligned global address");
  const std::scoped_lock lock(mutex_);
  Array& array = array_at(address, bytes, what);
  const std::size_t offset = address - array.begin;
  for (std::size_t i = offset / cell_bytes; i < (offset + bytes + cell_bytes - 1) / cell_bytes; ++i) {
    Cell& cell = array.cells[i];
    if (cell.who.launch != who.launch) cell = {};
    const bool others = cell.access != Access::none && (cell.several || cell.who != who);
    const bool agree = cell.access == access && access != Access::write;
    if (others && !agree) {
      throw Error("race: " + std::string(what) + " touches global byte " + std::to_string(i * cell_bytes) +
                  " of an array of " + std::to_string(array.bytes) + ", which thread " +
                  std::to_string(cell.who.thread) + " of block " + std::to_string(cell.who.block) +
                  " used without being ordered with it");
    }
    cell.several = others;
    cell.who = who;
    cell.access = std::max(cell.access, access);
  }
}

GlobalMemory& global_memory() {
  static GlobalMemory memory;
  return memory;
}

}  // namespace simt
