#pragma once
/// How `bench` writes its rows.

#include <string>
#include <vector>

#include "cli/rows/bench.hpp"

namespace distattn::cli {

enum class BenchForm : std::uint8_t { md, csv, json };

/// All rows in one form; text forms show their tables' most telling columns (md) or every number (csv).
std::string text_of(const std::vector<BenchRow>& rows, BenchForm form);
std::string text_of(const std::vector<KernelRow>& rows, BenchForm form);

}  // namespace distattn::cli
