#pragma once
/// A file under its temporary name: made where none was, held while its makers live, removed when they are dead.

#include <filesystem>
#include <string>

namespace distattn {

/// What the temporary name of a new file ends in: the machine, as long as it runs, and random digits. Process numbers
/// tell nothing: containers count their own.
std::string new_tag();

/// "<name>.partial-<tag>" in the same folder; of a name that is too long for that, its beginning.
std::filesystem::path partial_path(const std::filesystem::path& path, const std::string& tag);

/// Makes that file, which no other process has open and which is no link, and holds it. Its descriptor, or −1 and
/// errno.
int make_partial(const std::filesystem::path& partial);

/// Opens the file that another process made and holds, to hold it too. Its descriptor, or −1 and errno.
int join_partial(const std::filesystem::path& partial);

/// The folder of a file, which stays the same whatever its name becomes.
class HeldFolder {
 public:
  /// is_open() is false where it cannot be had, and errno says why.
  explicit HeldFolder(const std::filesystem::path& file) noexcept;
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  bool is_open() const { return fd_ >= 0; }
  /// Removes the file of that name in it.
  void remove(const std::filesystem::path& file) const noexcept;

 private:
  int fd_;
};

/// Holds a folder, so that sets of files are renamed there one after the other; not for longer than some seconds.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder) noexcept;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

/// Removes the temporary files of `path` that processes of this machine left behind, which nobody holds any more.
void remove_dead_partials(const std::filesystem::path& path) noexcept;

}  // namespace distattn
