#pragma once
/// The folder that results are written to: complete files or none.

#include <filesystem>
#include <string>
#include <vector>

#include "distattn/io.hpp"
#include "rank_tensors.hpp"

namespace distattn::cli {

/// o.npy, lse.npy and with the backward pass dq.npy, dk.npy, dv.npy: float32, in the input's rank, whole and in the
/// original order.
class ResultFiles {
 public:
  /// Makes the folder and the files under temporary names, before anything is computed. Throws Error(environment)
  /// where that is not possible.
  ResultFiles(std::filesystem::path folder, const Inputs& inputs, Passes passes);
  /// Removes what was not committed, and the folder if it was made here.
  ~ResultFiles();
  ResultFiles(const ResultFiles&) = delete;
  ResultFiles& operator=(const ResultFiles&) = delete;

  /// Writes what every rank holds, and gives all files their names.
  void commit(const Sharding& sharding, const std::vector<RankTensors>& ranks);

 private:
  struct Folder {
    explicit Folder(std::filesystem::path path);
    ~Folder();
    std::filesystem::path path;
    bool made = false, kept = false;
  };

  Folder folder_;  // before the writers: removed after their files
  std::vector<NpyWriter> writers_;
};

}  // namespace distattn::cli
