#pragma once
/// Arrays in files: .npy and .safetensors, read with sizes checked before anything is allocated; output is written
/// under a temporary name and renamed when complete.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distattn/tensor.hpp"
#include "distattn/types.hpp"

namespace distattn {

/// Element types of stored arrays; int32 and int64 only for cu_seqlens. A .safetensors file may also hold tensors of
/// `other` types. Their sizes are checked if the format defines the type; their values cannot be read.
enum class StoredType : std::uint8_t { fp64, fp32, bf16, fp16, int32, int64, other };

/// An array inside a mapped file. Copies share the mapping. Shape as stored; data dense, either order (.npy).
class StoredArray {
 public:
  /// `data` holds the elements of `shape` densely and stays valid as long as `mapping`. Misaligned values are copied.
  /// `dtype` is the type's name in the file, for error messages.
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
  /// A rank-1 array of floating-point numbers. Throws Error(usage) otherwise.
  std::vector<double> numbers() const;

 private:
  StoredType type_;
  bool fortran_order_;
  std::vector<std::int64_t> shape_;
  const std::byte* data_;
  std::shared_ptr<const void> mapping_;
  std::string origin_, dtype_;
};

/// NumPy format 1.0–3.0, little-endian float16/32/64 or int32/64, with headers as any version of Python writes them.
/// Trailing bytes are refused. Throws Error(usage) for a file that cannot be opened or is malformed.
StoredArray read_npy(const std::filesystem::path& path);
/// Every tensor of the file. Header, offsets and sizes are checked: the tensors must cover the data exactly. Throws
/// Error(usage) as read_npy does.
std::map<std::string, StoredArray> read_safetensors(const std::filesystem::path& path);

/// The path of the file that an array maps at this address, or null. Reading a mapped file that has been truncated
/// raises SIGBUS. The library installs no signal handler; a program's own handler may call this function to see whether
/// a truncated file is the cause.
const char* mapped_file_at(const void* address) noexcept;

/// Throws Error(environment) that names a file which is still mapped by an array and has been modified since it was
/// opened: values read from it may be old, new, or zero.
void require_unchanged_files();

/// Writes a float32 .npy of fixed shape. Several writers may each fill a part; the file gets its name only when it is
/// complete. Without commit() the destructor removes it. write() is thread-safe.
class NpyWriter {
 public:
  /// Creates "<name>.partial-<tag>" in the target folder, a new file even if others write to the same name. Throws
  /// Error(environment) if it cannot.
  NpyWriter(std::filesystem::path path, const std::vector<std::int64_t>& shape);
  /// A further process's writer for the file that another process created with the constructor above; `tag` is its
  /// tag(). Its commit() only flushes. The creator must call commit() last, which gives the file its name.
  static NpyWriter join(std::filesystem::path path, const std::vector<std::int64_t>& shape, const std::string& tag);
  ~NpyWriter();
  NpyWriter(NpyWriter&&) noexcept;
  NpyWriter& operator=(NpyWriter&&) noexcept;
  /// Writes `count` elements at element `offset` of the array. Throws Error(environment), e.g. on a full disk.
  void write(std::int64_t offset, const float* values, std::int64_t count);
  /// Suffix of the temporary name, unique to each writer that creates a file.
  const std::string& tag() const;
  /// Flushes and renames.
  void commit();
  /// Commits a set of files in one `folder`: flushes all, then renames all while other sets wait.
  static void commit_all(std::span<NpyWriter> writers, const std::filesystem::path& folder);

 private:
  struct State;
  explicit NpyWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace distattn
