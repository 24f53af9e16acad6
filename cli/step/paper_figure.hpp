#pragma once
/// One figure of a paper's data file.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "distattn/machine.hpp"

namespace distattn::step {

/// Machines and methods that a paper's file describes; computes its quantities (papers.hpp).
class PaperFigures {
 public:
  PaperFigures(std::map<std::string, Machine> machines, nlohmann::json methods)
      : machines_(std::move(machines)), methods_(std::move(methods)) {}

  /// Throws Error(usage) naming what it does not understand.
  double compute(const nlohmann::json& quantity) const;

 private:
  double figure(const nlohmann::json& fields) const;
  Machine machine(const nlohmann::json& fields) const;

  std::map<std::string, Machine> machines_;
  nlohmann::json methods_;
};

}  // namespace distattn::step
