#include "cli/run/result_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "cli/run/all_gather.hpp"
#include "cli/run/head_results.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

std::vector<Result> results_of(Passes passes, const Problem& problem) {
  const Scores& scores = problem.scores;
  std::vector<Result> results = {Result::o, Result::lse};
  if (passes == Passes::both) results = {Result::o, Result::lse, Result::dq, Result::dk};
  if (passes == Passes::both && !problem.shared_kv) results.push_back(Result::dv);
  if (passes == Passes::both && scores.sink_logits) results.push_back(Result::dsink_logits);
  if (scores.max_logit) results.push_back(Result::max_logit);
  return results;
}

/// The shape of each file; without batch where the input has none.
std::vector<std::int64_t> file_shape(Result result, const Inputs& inputs) {
  const Shape& s = inputs.shape();
  if (result == Result::dsink_logits) return {s.heads};
  std::vector<std::int64_t> shapes[] = {{s.batch, s.seq_q, s.heads, s.value_dim},
                                        {s.batch, s.heads, s.seq_q},
                                        {s.batch, s.seq_q, s.heads, s.head_dim},
                                        {s.batch, s.seq_kv, s.kv_heads, s.head_dim},
                                        {s.batch, s.seq_kv, s.kv_heads, s.value_dim},
                                        {},
                                        {s.batch, s.heads}};
  std::vector<std::int64_t> shape = std::move(shapes[index(result)]);
  if (!inputs.has_batch()) shape.erase(shape.begin());
  return shape;
}

/// How many finite numbers of fp64 are infinite in float32.
std::int64_t overflowed(const double* numbers, std::span<const float> floats) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) count += std::isinf(floats[i]) && std::isfinite(numbers[i]) ? 1 : 0;
  return count;
}

/// A run of elements as the file's float32; how many of them overflow.
std::int64_t write_row(NpyWriter& writer, std::int64_t offset, const std::byte* row, DType dtype, std::int64_t count,
                       std::vector<float>& floats) {
  if (dtype == DType::fp32) {
    writer.write(offset, reinterpret_cast<const float*>(row), count);
    return 0;
  }
  floats.resize(index(count));
  convert(row, dtype, reinterpret_cast<std::byte*>(floats.data()), DType::fp32, count);
  writer.write(offset, floats.data(), count);
  return dtype == DType::fp64 ? overflowed(reinterpret_cast<const double*>(row), floats) : 0;
}

/// A rank's rows to their places in [batch, sequence, heads, dim]; how many numbers overflow. Local rows of consecutive
/// positions go together.
std::int64_t write_rows(NpyWriter& writer, const ConstTensorView& local, std::span<const Segment> segments, Rank rank,
                        std::int64_t first_position, std::int64_t sequence) {
  const std::int64_t row = local.heads() * local.head_dim();
  std::vector<float> floats;
  std::int64_t lost = 0;
  for (std::int64_t b = 0; b < local.batch(); ++b) {
    std::int64_t token = 0;
    for (const Segment& segment : segments) {
      if (segment.owner != rank) continue;
      const std::int64_t together = segment.run.stride == 1 ? segment.run.count : 1;
      for (std::int64_t i = 0; i < segment.run.count; i += together, token += together) {
        const std::int64_t s = segment.run.at(i) - first_position;
        lost +=
            write_row(writer, (b * sequence + s) * row, local.row(b, token, 0), local.dtype, together * row, floats);
      }
    }
  }
  return lost;
}

/// Positions, counted from the first query, that follow each other.
struct Stretch {
  std::int64_t first, count;
};

std::vector<Stretch> stretches(const std::vector<char>& present) {
  std::vector<Stretch> found;
  for (std::size_t s = 0; s < present.size(); ++s) {
    if (!present[s]) continue;
    if (s == 0 || !present[s - 1]) found.push_back({static_cast<std::int64_t>(s), 0});
    ++found.back().count;
  }
  return found;
}

/// [batch, heads, sequence]; how many overflow. A rank's tokens may lie far apart, so what all ranks of this process
/// have is put together.
std::int64_t write_statistics(NpyWriter& writer, const Sharding& sharding, const std::vector<RankTensors>& here) {
  const Problem& problem = sharding.problem;
  std::vector<char> present(index(problem.seq_q));
  std::vector<std::vector<std::size_t>> places;
  for (const RankTensors& local : here) {
    places.emplace_back();
    for (const std::int64_t position : positions(sharding.queries, local.rank())) {
      places.back().push_back(index(position - problem.first_query()));
      present[places.back().back()] = 1;
    }
  }
  const std::vector<Stretch> together = stretches(present);
  std::vector<float> row(present.size());
  std::int64_t lost = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t h = 0; h < problem.heads; ++h) {
      for (std::size_t r = 0; r < here.size(); ++r) {
        const ConstTensorView lse = here[r].lse();
        for (std::int64_t i = 0; i < lse.sequence(); ++i) {
          float& into = row[places[r][index(i)]];
          convert(lse.row(b, i, h), lse.dtype, reinterpret_cast<std::byte*>(&into), DType::fp32, 1);
          if (lse.dtype == DType::fp64) {
            lost += overflowed(reinterpret_cast<const double*>(lse.row(b, i, h)), std::span(&into, 1));
          }
        }
      }
      for (const auto [first, count] : together) {
        writer.write((b * problem.heads + h) * problem.seq_q + first, &row[index(first)], count);
      }
    }
  }
  return lost;
}

/// Whether it was not there before.
bool make_folder(const std::filesystem::path& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(path, error);
  std::error_code unknown;
  if (!made && !std::filesystem::is_directory(path, unknown)) {
    throw Error(ErrorKind::environment,
                fmt::format("cannot make the folder {} ({}): choose another with --out", path.string(),
                            unknown ? unknown.message()
                            : error ? error.message()
                                    : "a file has this name"));
  }
  return made;
}

}  // namespace

std::vector<std::filesystem::path> result_paths(const std::filesystem::path& folder, Passes passes,
                                                const Problem& problem) {
  std::vector<std::filesystem::path> paths;
  for (const Result result : results_of(passes, problem))
    paths.push_back(folder / fmt::format("{}.npy", name_of(result)));
  return paths;
}

ResultFiles::Folder::Folder(std::filesystem::path folder, std::optional<bool> was_made)
    : path(std::move(folder)),
      removal([&] { is_new = was_made ? *was_made : make_folder(path); }, [this] { remove(); }) {}

ResultFiles::Folder::~Folder() {
  if (!kept) remove();
}

void ResultFiles::Folder::remove() const {
  if (is_new) ::rmdir(path.c_str());
}

ResultFiles::ResultFiles(World& world, const std::filesystem::path& folder, const Inputs& inputs,
                         const Problem& problem, Passes passes)
    : world_(world), paths_(result_paths(folder, passes, problem)), results_(results_of(passes, problem)) {
  const bool makes = world.first() == 0;
  std::string what;  // whether the folder is new, and the writers' tags, a line each
  if (makes) {
    folder_.emplace(folder, std::nullopt);
    what = folder_->is_new ? "new\n" : "old\n";
    for (std::size_t file = 0; file < paths_.size(); ++file) {
      what += writers_.emplace_back(paths_[file], file_shape(results_[file], inputs)).tag() + "\n";
    }
  }
  std::istringstream told(world.broadcast(what));
  if (makes) return;
  std::string line;
  std::getline(told, line);
  folder_.emplace(folder, line == "new");
  for (std::size_t file = 0; file < paths_.size() && std::getline(told, line); ++file) {
    writers_.push_back(NpyWriter::join(paths_[file], file_shape(results_[file], inputs), line));
  }
  DISTATTN_EXPECT(writers_.size() == paths_.size());
}

ResultFiles::~ResultFiles() = default;

bool ResultFiles::writes(Result result) const { return std::ranges::find(results_, result) != results_.end(); }

NpyWriter& ResultFiles::writer_of(Result result) {
  return writers_[index(std::ranges::find(results_, result) - results_.begin())];
}

/// A result whose numbers are put together from all ranks' shares.
std::int64_t ResultFiles::write_head_result(Result result, const std::vector<RankTensors>& here,
                                            std::vector<double> (*whole)(World&, const std::vector<RankTensors>&)) {
  if (!writes(result)) return 0;
  const std::vector<double> numbers = whole(world_, here);
  if (world_.first() != 0) return 0;
  std::vector<float> rounded;
  return write_row(writer_of(result), 0, reinterpret_cast<const std::byte*>(numbers.data()), DType::fp64,
                   std::ssize(numbers), rounded);
}

void ResultFiles::commit(const Sharding& sharding, const std::vector<RankTensors>& here) {
  const Problem& problem = sharding.problem;
  std::int64_t lost = 0;
  for (const RankTensors& local : here) {
    const auto queries = [&](Result result, const ConstTensorView& view) {
      lost += write_rows(writer_of(result), view, sharding.queries, local.rank(), problem.first_query(), problem.seq_q);
    };
    const auto keys = [&](Result result, const ConstTensorView& view) {
      lost += write_rows(writer_of(result), view, sharding.keys, local.rank(), 0, problem.seq_kv);
    };
    queries(Result::o, local.o());
    if (!writes(Result::dq)) continue;
    queries(Result::dq, local.dq());
    keys(Result::dk, local.dk());
    if (writes(Result::dv)) keys(Result::dv, local.dv());
  }
  lost += write_statistics(writer_of(Result::lse), sharding, here);
  lost += write_head_result(Result::dsink_logits, here, sink_gradients);
  lost += write_head_result(Result::max_logit, here, max_logits);
  if (world_.first() != 0) NpyWriter::commit_all(writers_, folder_->path);
  const std::vector<std::int64_t> losses = all_gather<std::int64_t>(world_, std::span(&lost, 1));
  if (world_.first() == 0) NpyWriter::commit_all(writers_, folder_->path);
  folder_->kept = true;
  lost = std::accumulate(losses.begin(), losses.end(), std::int64_t{0});
  if (lost > 0 && world_.first() == 0) {
    note(fmt::format("{} numbers of the results are beyond float32, which is what --out writes: infinite in its files",
                     lost));
  }
}

}  // namespace distattn::cli
