#pragma once
/// What `bench` says: its rows, whether they reach what they must, and what a calibration measured.

#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/rows/bench.hpp"
#include "distattn/machine.hpp"

namespace distattn::cli {

/// `fitting`: Markdown, or on a terminal that is too narrow for it blocks of columns.
enum class BenchForm : std::uint8_t { md, csv, json, fitting };

/// All rows in one form; text forms show their tables' most telling columns (md, fitting) or every number (csv).
std::string text_of(const std::vector<BenchRow>& rows, BenchForm form);
std::string text_of(const std::vector<KernelRow>& rows, BenchForm form);
std::string text_of(const std::vector<PlanningRow>& rows, BenchForm form);
std::string text_of(const std::vector<ServingRow>& rows, BenchForm form);

struct Gates {
  std::optional<double> least_gflops, most_ratio;
};

/// The rows that are farthest from their prediction, of those that have one.
std::string worst_ratios(const std::vector<BenchRow>& rows);
/// Says which rows miss a gate or are wrong.
Outcome judge(const std::vector<BenchRow>& rows, const Gates& gates);
/// Says which kernels are wrong. One that failed ends the command as it would have ended without the others.
Outcome judge_variants(const std::vector<KernelRow>& rows);

/// Says which mixes are wrong.
Outcome judge(const std::vector<ServingRow>& rows);

/// What a calibration measured.
std::string text_of(const Machine& machine, int head_dim);

}  // namespace distattn::cli
