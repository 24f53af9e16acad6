#pragma once
/// --config FILE: options as TOML, "name = value" by their long names.

#include <CLI/CLI.hpp>

namespace distattn::cli {

/// Keys before the first table count for whatever command runs, those under [run], or as run.key, only for `distattn
/// run`. Strings, numbers, booleans and lists of them; anything else, an unknown or a repeated key is refused with its
/// line.
class ConfigFile final : public CLI::Config {
 public:
  explicit ConfigFile(const CLI::App& root) : root_(root) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

 private:
  const CLI::App& root_;
};

}  // namespace distattn::cli
