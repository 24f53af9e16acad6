#include "result_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "interruption.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<const char*, 5> names = {"o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy"};

/// The shape of each file; without batch where the input has none.
std::vector<std::int64_t> file_shape(std::size_t file, const Inputs& inputs) {
  const Shape& s = inputs.shape();
  std::vector<std::int64_t> shapes[] = {{s.batch, s.seq_q, s.heads, s.value_dim},
                                        {s.batch, s.heads, s.seq_q},
                                        {s.batch, s.seq_q, s.heads, s.head_dim},
                                        {s.batch, s.seq_kv, s.kv_heads, s.head_dim},
                                        {s.batch, s.seq_kv, s.kv_heads, s.value_dim}};
  std::vector<std::int64_t> shape = std::move(shapes[file]);
  if (!inputs.has_batch()) shape.erase(shape.begin());
  return shape;
}

/// A run of elements as the file's float32.
void write_row(NpyWriter& writer, std::int64_t offset, const std::byte* row, DType dtype, std::int64_t count,
               std::vector<float>& floats) {
  if (dtype == DType::fp32) return writer.write(offset, reinterpret_cast<const float*>(row), count);
  floats.resize(static_cast<std::size_t>(count));
  convert(row, dtype, reinterpret_cast<std::byte*>(floats.data()), DType::fp32, count);
  writer.write(offset, floats.data(), count);
}

/// A rank's rows to their places in [batch, sequence, heads, dim]. Local rows of consecutive positions go together.
void write_rows(NpyWriter& writer, const ConstTensorView& local, std::span<const Segment> segments, Rank rank,
                std::int64_t first_position, std::int64_t sequence) {
  const std::int64_t row = local.heads() * local.head_dim();
  std::vector<float> floats;
  for (std::int64_t b = 0; b < local.batch(); ++b) {
    std::int64_t token = 0;
    for (const Segment& segment : segments) {
      if (segment.owner != rank) continue;
      const std::int64_t together = segment.run.stride == 1 ? segment.run.count : 1;
      for (std::int64_t i = 0; i < segment.run.count; i += together, token += together) {
        const std::int64_t s = segment.run.at(i) - first_position;
        write_row(writer, (b * sequence + s) * row, local.row(b, token, 0), local.dtype, together * row, floats);
      }
    }
  }
}

/// [batch, heads, sequence]: a rank's tokens lie apart, so whole rows are put together first.
void write_statistics(NpyWriter& writer, const Sharding& sharding, const std::vector<RankTensors>& ranks) {
  const Problem& problem = sharding.problem;
  std::vector<std::vector<std::int64_t>> positions_of;
  for (Rank rank = 0; rank < sharding.ranks; ++rank) positions_of.push_back(positions(sharding.queries, rank));
  std::vector<float> row(static_cast<std::size_t>(problem.seq_q));
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t h = 0; h < problem.heads; ++h) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const ConstTensorView lse = ranks[rank].lse();
        for (std::int64_t i = 0; i < lse.sequence(); ++i) {
          float& into =
              row[static_cast<std::size_t>(positions_of[rank][static_cast<std::size_t>(i)] - problem.first_query())];
          convert(lse.row(b, i, h), lse.dtype, reinterpret_cast<std::byte*>(&into), DType::fp32, 1);
        }
      }
      writer.write((b * problem.heads + h) * problem.seq_q, row.data(), problem.seq_q);
    }
  }
}

}  // namespace

ResultFiles::Folder::Folder(std::filesystem::path folder) : path(std::move(folder)) {
  std::error_code error;
  made = std::filesystem::create_directory(path, error);
  if (!made && !std::filesystem::is_directory(path)) {
    throw Error(ErrorKind::environment, fmt::format("cannot make the folder {} ({}) choose another with --out",
                                                    path.string(), error ? error.message() : "a file has this name"));
  }
  if (made) at_interruption([folder = path.string()] { ::rmdir(folder.c_str()); });
}

ResultFiles::Folder::~Folder() {
  if (made && !kept) ::rmdir(path.c_str());
}

ResultFiles::ResultFiles(std::filesystem::path folder, const Inputs& inputs, Passes passes)
    : folder_(std::move(folder)) {
  const std::size_t files = passes == Passes::both ? names.size() : 2;
  for (std::size_t file = 0; file < files; ++file) {
    writers_.emplace_back(folder_.path / names[file], file_shape(file, inputs));
  }
}

ResultFiles::~ResultFiles() = default;

void ResultFiles::commit(const Sharding& sharding, const std::vector<RankTensors>& ranks) {
  const Problem& problem = sharding.problem;
  for (Rank rank = 0; rank < sharding.ranks; ++rank) {
    const RankTensors& local = ranks[static_cast<std::size_t>(rank)];
    const auto queries = [&](NpyWriter& writer, const ConstTensorView& view) {
      write_rows(writer, view, sharding.queries, rank, problem.first_query(), problem.seq_q);
    };
    const auto keys = [&](NpyWriter& writer, const ConstTensorView& view) {
      write_rows(writer, view, sharding.keys, rank, 0, problem.seq_kv);
    };
    queries(writers_[0], local.o());
    if (writers_.size() == 2) continue;
    queries(writers_[2], local.dq());
    keys(writers_[3], local.dk());
    keys(writers_[4], local.dv());
  }
  write_statistics(writers_[1], sharding, ranks);
  for (NpyWriter& writer : writers_) writer.commit();
  folder_.kept = true;
}

}  // namespace distattn::cli
