#pragma once
/// A file that appears under its name only when complete.

#include <cstddef>
#include <filesystem>
#include <optional>

#include "distattn/io.hpp"

namespace distattn {

/// Writes "<name>.partial-<pid>" and renames it; where the name is a symbolic link, beside what it points to. Destroyed
/// without commit(): nothing is left behind. Throws Error(environment) where the operating system refuses, and for a
/// name that stands for anything but a regular file.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);
  /// The file that process `maker` is making under this name. commit() leaves the renaming to it.
  NewFile(std::filesystem::path path, int maker);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void resize(std::size_t bytes);
  /// May be called by several threads at once.
  void write_at(std::size_t offset, const void* data, std::size_t bytes) const;
  /// Flushes and renames.
  void commit();

 private:
  void open(int maker, int flags);

  std::filesystem::path path_, partial_;
  std::optional<Discardable> discardable_;
  int fd_ = -1;
  bool joined_ = false;
};

}  // namespace distattn
