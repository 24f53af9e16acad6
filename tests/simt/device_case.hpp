#pragma once
/// What tests of the CUDA device have in common: a GPU that all ranks share, devices for it, problems and checks.

#include <memory>
#include <string>

#include "catch.hpp"
#include "distattn/registry.hpp"
#include "simt/emulated_driver.hpp"
#include "tests/support/sharded.hpp"

namespace simt {

constexpr std::uint64_t device_seed = 33;

extern std::unique_ptr<EmulatedDriver> gpu;
/// Of these what a test is about holds for every device that make_device() makes: order, graphs, variant.
extern distattn::DeviceOptions asked;

/// Causal.
distattn::Problem problem_of(distattn::DType dtype, std::int64_t tokens, int heads, int kv_heads, int head_dim,
                             int value_dim);
/// Both passes.
distattn::test::ShardedRun run_of(const std::string& schedule, int ranks);
/// On a new GPU, against float64.
void check(const distattn::Problem& problem, const distattn::test::ShardedRun& run, int architecture = 80);

}  // namespace simt
