#pragma once
/// The folder that results are written to: complete files or none.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/rank_tensors.hpp"
#include "cli/tools/arrays.hpp"
#include "cli/tools/judge.hpp"
#include "distattn/files.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// Where the results of `passes` go: o.npy, lse.npy and with the backward pass dq.npy, dk.npy, dv.npy, the last
/// unless values lie in keys; max_logit.npy if the scores' largest are asked for, and dsink_logits.npy with the
/// backward pass if they have sinks.
std::vector<std::filesystem::path> result_paths(const std::filesystem::path& folder, Passes passes,
                                                const Problem& problem);

/// The files of result_paths(): float32, in the input's rank, whole and in the
/// original order.
class ResultFiles {
 public:
  /// The process of rank 0 makes the folder and the files under temporary names, before anything is computed; the
  /// others join in. Throws Error(environment) where that is not possible. `world` must outlive it. Collective.
  ResultFiles(World& world, const std::filesystem::path& folder, const Inputs& inputs, const Problem& problem,
              Passes passes);
  /// Removes what was not committed, and the folder if it was made here.
  ~ResultFiles();
  ResultFiles(const ResultFiles&) = delete;
  ResultFiles& operator=(const ResultFiles&) = delete;

  /// The files that are there after commit().
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  /// Writes what the ranks of this process hold; when all have, the files get their names. Collective.
  void commit(const Sharding& sharding, const std::vector<RankTensors>& here);

 private:
  struct Folder {
    /// Makes it, unless somebody `has_made` it or found it there. In the end, if it is new, removes it unless it is to
    /// be kept.
    Folder(std::filesystem::path path, std::optional<bool> has_made);
    ~Folder();
    void remove() const;
    std::filesystem::path path;
    bool is_new = false, kept = false;
    TemporaryFile removal;
  };

  bool writes(Result result) const;
  NpyWriter& writer_of(Result result);
  std::int64_t write_head_result(Result result, const std::vector<RankTensors>& here,
                                 std::vector<double> (*whole)(World&, const std::vector<RankTensors>&));

  World& world_;
  std::vector<std::filesystem::path> paths_;
  std::vector<Result> results_;   // of each path
  std::optional<Folder> folder_;  // before the writers: removed after their files
  std::vector<NpyWriter> writers_;
};

}  // namespace distattn::cli
