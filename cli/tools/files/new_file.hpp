#pragma once
/// A file that appears under its name only when complete.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/tools/files/partial_file.hpp"
#include "distattn/files.hpp"

namespace distattn {

/// Writes a file of its own under a temporary name and renames it; where the name is a symbolic link, beside what it
/// points to. Destroyed without commit(): nothing is left behind, and what dead processes left of the same file is
/// removed first. Throws Error(environment) where the operating system refuses, and for a name that stands for anything
/// but a regular file.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);
  /// The file that another process, whose is the tag(), is making under this name. It does the renaming.
  NewFile(std::filesystem::path path, const std::string& tag);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& tag() const { return tag_; }

  void resize(std::size_t bytes);
  /// May be called by several threads at once.
  void write_at(std::size_t offset, const void* data, std::size_t bytes) const;
  /// All of it is on the disk.
  void flush() const;
  /// Flushes and renames.
  void commit();
  /// Renames what was flushed; under the lock of hold_temporary_files().
  void rename();

 private:
  void hold_folder();

  std::filesystem::path path_, partial_;
  std::string tag_;
  std::optional<HeldFolder> folder_;  // out of which the temporary file is removed
  std::optional<TemporaryFile> temporary_;
  int fd_ = -1;
  bool joined_ = false, done_ = false;
};

}  // namespace distattn
