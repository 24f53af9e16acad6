#pragma once
/// Pipes, at whose other end there may be nobody.

#include <filesystem>
#include <string>
#include <string_view>

namespace distattn {

/// Both wait as wait_for_pipes() says, and throw Error(timeout) beyond that. `fd` does not block.

/// What comes through the pipe up to its end, or the first `most` bytes.
std::string read_pipe(int fd, std::size_t most, const std::filesystem::path& path);
void write_pipe(int fd, std::string_view text, const std::filesystem::path& path);

/// A descriptor to write to what is no regular file, such as a pipe once somebody reads from it; −1, and errno.
int open_to_write(const std::filesystem::path& path);

}  // namespace distattn
