#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cli/tools/arrays.hpp"
#include "cli/tools/files/new_file.hpp"
#include "cli/tools/files/npy_header.hpp"
#include "cli/tools/files/partial_file.hpp"
#include "cli/tools/files/stored.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/index.hpp"

namespace distattn {

struct NpyWriter::State {
  template <class... Tag>
  State(std::filesystem::path path, std::size_t header, std::int64_t count, const Tag&... tag)
      : file(std::move(path), tag...), header_bytes(header), elements(count) {}

  NewFile file;
  std::size_t header_bytes;
  std::int64_t elements;
};

namespace {

/// What stands in front of the elements, and how many there are.
struct Form {
  std::string header;
  std::int64_t elements;
};

Form form_of(const std::filesystem::path& path, const std::vector<std::int64_t>& shape) {
  const auto bytes = checked_bytes(shape, sizeof(float));
  std::string header = npy_header(shape);
  if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max() - static_cast<std::int64_t>(header.size())) {
    refuse(fmt::format("{} cannot have shape {} (its size passes 63 bits)", path.string(), to_string(shape)));
  }
  return {std::move(header), *bytes / static_cast<std::int64_t>(sizeof(float))};
}

}  // namespace

NpyWriter::NpyWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

NpyWriter::NpyWriter(std::filesystem::path path, const std::vector<std::int64_t>& shape) {
  const auto [header, elements] = form_of(path, shape);
  state_ = std::make_unique<State>(std::move(path), header.size(), elements);
  state_->file.write_at(0, header.data(), header.size());
  state_->file.resize(header.size() + index(elements) * sizeof(float));
}

NpyWriter NpyWriter::join(std::filesystem::path path, const std::vector<std::int64_t>& shape, const std::string& tag) {
  const auto [header, elements] = form_of(path, shape);
  return NpyWriter(std::make_unique<State>(std::move(path), header.size(), elements, tag));
}

const std::string& NpyWriter::tag() const { return state_->file.tag(); }

NpyWriter::~NpyWriter() = default;
NpyWriter::NpyWriter(NpyWriter&&) noexcept = default;
NpyWriter& NpyWriter::operator=(NpyWriter&&) noexcept = default;

void NpyWriter::write(std::int64_t offset, const float* values, std::int64_t count) {
  DISTATTN_EXPECT(0 <= offset && 0 <= count && count <= state_->elements - offset);
  state_->file.write_at(state_->header_bytes + index(offset) * sizeof(float), values, index(count) * sizeof(float));
}

void NpyWriter::commit() { state_->file.commit(); }

void NpyWriter::commit_all(std::span<NpyWriter> writers, const std::filesystem::path& folder) {
  for (const NpyWriter& writer : writers) writer.state_->file.flush();
  const FolderLock no_other_set(folder);
  const auto lock = hold_temporary_files();
  for (NpyWriter& writer : writers) writer.state_->file.rename();
}

}  // namespace distattn
