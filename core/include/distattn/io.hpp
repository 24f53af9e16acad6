#pragma once
/// .npy and .safetensors: read with bounds and overflow checked before anything is allocated; written under a
/// temporary name and renamed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/tensor.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Element types of stored arrays; int32 and int64 only for cu_seqlens. A .safetensors file may hold tensors of
/// `other` types beside those that are asked for: their sizes are checked where the format defines them, their values
/// cannot be read.
enum class StoredType : std::uint8_t { fp64, fp32, bf16, fp16, int32, int64, other };

/// An array inside a mapped file. Copies share the mapping. Shape as stored; data dense, either order (.npy).
class StoredArray {
 public:
  /// `data` holds the elements of `shape` densely and stays valid as long as `mapping`. Values that do not lie on a
  /// boundary of their type are copied to one. `dtype` is the type's name in the file, for messages.
  StoredArray(StoredType type, bool fortran_order, std::vector<std::int64_t> shape, const std::byte* data,
              std::shared_ptr<const void> mapping, std::string origin, std::string dtype = {});

  StoredType type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::byte* data() const { return data_; }
  const std::string& origin() const { return origin_; }  ///< "file.npy" or "file.safetensors:q", for messages

  /// As [batch, sequence, heads, head_dim] (rank 3: batch 1). Throws Error(usage) for other ranks or integers.
  ConstTensorView tensor() const;
  bool has_batch() const { return shape_.size() == 4; }
  /// A rank-1 int32 or int64 array. Throws Error(usage) otherwise.
  std::vector<std::int64_t> integers() const;

 private:
  StoredType type_;
  bool fortran_order_;
  std::vector<std::int64_t> shape_;
  const std::byte* data_;
  std::shared_ptr<const void> mapping_;
  std::string origin_, dtype_;
};

/// NumPy format 1.0–3.0, little-endian float16/32/64 or int32/64, the header as any version of Python wrote it. Bytes
/// left over are refused.
/// Throws Error(usage) for a file that cannot be opened or is not what it says.
StoredArray read_npy(const std::filesystem::path& path);
/// Every tensor of the file. The header, offsets and sizes are checked to tile the data exactly.
/// Throws Error(usage) as read_npy does.
std::map<std::string, StoredArray> read_safetensors(const std::filesystem::path& path);

/// The path of a file that is mapped at this address by an array that was read, or null. Who touches values of a file
/// that was cut short meanwhile gets SIGBUS, as with any mapping: a program that handles the signal may ask here, also
/// in the handler, whether that is why. The library installs none.
const char* mapped_file_at(const void* address) noexcept;

/// Throws Error(environment) naming a file that an array was read from, still mapped, and that has been written to
/// since: values that were read may be old, new, or zeros where it ended.
void require_unchanged_files();

/// A float32 .npy of a fixed shape that several writers fill by rows and that appears under its name only when
/// complete. Destroyed without commit(): nothing is left behind. write() may be called by several threads at once.
class NpyWriter {
 public:
  /// Creates "<name>.partial-<tag>" in the target folder, a file of its own whatever others write there. Throws
  /// Error(environment) if it cannot.
  NpyWriter(std::filesystem::path path, std::vector<std::int64_t> shape);
  /// Another process's writer for the file that the process whose writer has this tag() creates with the constructor
  /// above. Its commit() only flushes; the maker's, after that of all others, gives the file its name.
  static NpyWriter join(std::filesystem::path path, std::vector<std::int64_t> shape, const std::string& tag);
  ~NpyWriter();
  NpyWriter(NpyWriter&&) noexcept;
  NpyWriter& operator=(NpyWriter&&) noexcept;
  /// Writes `count` elements at element `offset` of the array. Throws Error(environment), e.g. on a full disk.
  void write(std::int64_t offset, const float* values, std::int64_t count);
  /// What the temporary name ends in: different for every writer that creates a file.
  const std::string& tag() const;
  /// Flushes and renames.
  void commit();
  /// All of a set in one `folder`: flushed first, then renamed with no other set's names between theirs.
  static void commit_all(std::span<NpyWriter> writers, const std::filesystem::path& folder);

 private:
  struct State;
  explicit NpyWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A whole file. Throws Error(usage) when it cannot be read.
std::string read_file(const std::filesystem::path& path);
/// The same, or all that comes through a pipe. Throws Error(usage) too when it is more than `most_bytes`, or a device,
/// which may have no end, and Error(timeout) as wait_for_pipes() says.
std::string read_file_or_pipe(const std::filesystem::path& path, std::size_t most_bytes);

/// Longest time for which this process waits at a pipe through which nothing goes, because the other end is not there
/// or does nothing. 60 s at first.
void wait_for_pipes(double seconds);

/// A text file that appears under its name only when complete; destroyed without commit(): nothing is left behind. A
/// symbolic link is followed. What is no regular file (a pipe, a device, "/dev/stdout") stays, and is written to.
class TextWriter {
 public:
  /// Opens a temporary file in the target folder, or the pipe. Throws Error(environment) if it cannot.
  explicit TextWriter(const std::filesystem::path& path);
  ~TextWriter();
  TextWriter(TextWriter&&) noexcept;
  TextWriter& operator=(TextWriter&&) noexcept;
  /// Writes all of the file; once. Throws Error(environment), e.g. on a full disk.
  void commit(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Which descriptor standard output is, where a program has moved it away from 1: what "/dev/stdout" then names, and
/// what no new file may replace.
void set_standard_output(int fd);

/// The same at once.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Removes every temporary file of this process, of writers and others, the last made first: for one that ends without
/// unwinding (a signal). As long as what it returns lives, threads that make, complete or remove one wait.
[[nodiscard]] std::unique_lock<std::mutex> discard_partial_files();
/// Keeps discard_partial_files() waiting.
[[nodiscard]] std::unique_lock<std::mutex> hold_partial_files();

/// What discard_partial_files() calls too, until this is destroyed. It may be called by any thread, and must not throw.
class Discardable {
 public:
  explicit Discardable(std::function<void()> remove) : Discardable([] {}, std::move(remove)) {}
  /// Calls `make`, which may throw, so that nothing is discarded between that and what removes it.
  Discardable(const std::function<void()>& make, std::function<void()> remove);
  ~Discardable();
  Discardable(const Discardable&) = delete;
  Discardable& operator=(const Discardable&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

}  // namespace distattn
#pragma GCC visibility pop
