#include <fmt/format.h>

#include <limits>
#include <utility>

#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "io_stored.hpp"
#include "new_file.hpp"
#include "npy_header.hpp"

namespace distattn {

struct NpyWriter::State {
  State(std::filesystem::path path, std::size_t header, std::int64_t count)
      : file(std::move(path)), header_bytes(header), elements(count) {}

  NewFile file;
  std::size_t header_bytes;
  std::int64_t elements;
};

NpyWriter::NpyWriter(std::filesystem::path path, std::vector<std::int64_t> shape) {
  const auto bytes = checked_bytes(shape, sizeof(float));
  const std::string header = npy_header(shape);
  if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max() - static_cast<std::int64_t>(header.size())) {
    refuse(fmt::format("{} cannot have shape {} (its size passes 63 bits)", path.string(), to_string(shape)));
  }
  state_ = std::make_unique<State>(std::move(path), header.size(), *bytes / static_cast<std::int64_t>(sizeof(float)));
  state_->file.write_at(0, header.data(), header.size());
  state_->file.resize(header.size() + static_cast<std::size_t>(*bytes));
}

NpyWriter::~NpyWriter() = default;
NpyWriter::NpyWriter(NpyWriter&&) noexcept = default;
NpyWriter& NpyWriter::operator=(NpyWriter&&) noexcept = default;

void NpyWriter::write(std::int64_t offset, const float* values, std::int64_t count) {
  DISTATTN_EXPECT(0 <= offset && 0 <= count && count <= state_->elements - offset);
  state_->file.write_at(state_->header_bytes + static_cast<std::size_t>(offset) * sizeof(float), values,
                        static_cast<std::size_t>(count) * sizeof(float));
}

void NpyWriter::commit() { state_->file.commit(); }

}  // namespace distattn
