#pragma once
/// Text files that get their names when they are complete.

#include <filesystem>
#include <memory>
#include <string_view>

namespace distattn {

/// Writes a text file that gets its name only when it is complete. Without commit() the destructor removes it. Symbolic
/// links are followed. Pipes and devices, such as "/dev/stdout", are not replaced but written to.
class TextWriter {
 public:
  /// Opens a temporary file in the target folder, or the pipe. Throws Error(environment) if it cannot.
  explicit TextWriter(const std::filesystem::path& path);
  ~TextWriter();
  TextWriter(TextWriter&&) noexcept;
  TextWriter& operator=(TextWriter&&) noexcept;
  /// Writes the whole file; may be called once. Throws Error(environment), e.g. on a full disk.
  void commit(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Tells writers which descriptor is standard output, for programs that have moved it away from 1: "/dev/stdout"
/// then means `fd`, and no new file replaces it.
void set_standard_output(int fd);

/// Writes a text file with TextWriter.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace distattn
