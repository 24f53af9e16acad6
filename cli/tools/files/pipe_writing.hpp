#pragma once
/// Writing to pipes, with the waits of core/src/io/pipe_end.hpp.

#include <filesystem>
#include <string_view>

namespace distattn {

void write_pipe(int fd, std::string_view text, const std::filesystem::path& path);

/// A descriptor to write to what is no regular file, such as a pipe once somebody reads from it; −1, and errno.
int open_to_write(const std::filesystem::path& path);

}  // namespace distattn
