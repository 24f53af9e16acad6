#pragma once
/// How `bench` writes its rows.

#include <string>
#include <vector>

#include "cli/rows/bench.hpp"

namespace distattn::cli {

/// `fitting`: Markdown, or on a terminal that is too narrow for it blocks of columns.
enum class BenchForm : std::uint8_t { md, csv, json, fitting };

/// All rows in one form; text forms show their tables' most telling columns (md, fitting) or every number (csv).
std::string text_of(const std::vector<BenchRow>& rows, BenchForm form);
std::string text_of(const std::vector<KernelRow>& rows, BenchForm form);

}  // namespace distattn::cli
