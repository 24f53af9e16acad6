#pragma once
/// Results that would take the place of what they are computed from.

#include <filesystem>
#include <vector>

namespace distattn::cli {

/// Throws Error(usage) where a file to be written is one that is read, by whatever name.
void refuse_overwriting(const std::vector<std::filesystem::path>& read,
                        const std::vector<std::filesystem::path>& written);

}  // namespace distattn::cli
