#include <sys/stat.h>

#include <numeric>
#include <thread>

#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "scratch.hpp"

#include "catch.hpp"

using namespace distattn;
using namespace distattn::test;
using Catch::Matchers::Contains;

namespace {

std::string environment_error(const std::filesystem::path& path) {
  try {
    NpyWriter(path, {1, 1, 8});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what a writer commits, a reader reads", "[io]") {
  const Scratch scratch;
  const auto path = scratch.path() / "o.npy";
  const std::vector<std::int64_t> shape =
      GENERATE(std::vector<std::int64_t>{6}, std::vector<std::int64_t>{3, 1, 2}, std::vector<std::int64_t>{1, 3, 2, 1});
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 0.f);
  {
    NpyWriter writer(path, shape);
    CHECK_FALSE(std::filesystem::exists(path));
    writer.write(2, values.data() + 2, 4);
    writer.write(0, values.data(), 2);
    writer.commit();
  }
  CHECK(scratch.file_count() == 1);
  const StoredArray array = read_npy(path);
  CHECK(array.type() == StoredType::fp32);
  CHECK(array.shape() == shape);
  const auto* stored = reinterpret_cast<const float*>(array.data());
  CHECK(std::vector<float>(stored, stored + 6) == values);
}

TEST_CASE("threads fill one file by rows", "[io]") {
  const Scratch scratch;
  constexpr int rows = 64, columns = 257;
  NpyWriter writer(scratch.path() / "o.npy", {rows, columns});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int row = t; row < rows; row += 4) {
        const std::vector<float> values(columns, static_cast<float>(row));
        writer.write(row * columns, values.data(), columns);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  writer.commit();
  const StoredArray array = read_npy(scratch.path() / "o.npy");
  const auto* stored = reinterpret_cast<const float*>(array.data());
  for (int i = 0; i < rows * columns; ++i) REQUIRE(stored[i] == static_cast<float>(i / columns));
}

TEST_CASE("an uncommitted writer leaves nothing behind", "[io]") {
  const Scratch scratch;
  scratch.write("o.npy", "what was there before");
  {
    NpyWriter writer(scratch.path() / "o.npy", {1024});
    CHECK(scratch.file_count() == 2);
    NpyWriter other = std::move(writer);
  }
  CHECK(scratch.file_count() == 1);
  CHECK(std::filesystem::file_size(scratch.path() / "o.npy") == 21);
}

TEST_CASE("a process that ends without unwinding can discard its partial files", "[io]") {
  const Scratch scratch;
  const NpyWriter writer(scratch.path() / "o.npy", {1024});
  CHECK(scratch.file_count() == 1);
  discard_partial_files();
  CHECK(scratch.file_count() == 0);
}

TEST_CASE("places that cannot be written are named", "[io]") {
  const Scratch scratch;
  scratch.write("file", "");
  std::filesystem::create_directory(scratch.path() / "o.npy");
  CHECK_THAT(environment_error(scratch.path() / "file" / "o.npy"), Contains("Not a directory"));
  CHECK_THAT(environment_error(scratch.path() / "missing" / "o.npy"), Contains("No such file"));
  CHECK_THAT(environment_error("/proc/o.npy"), Contains("/proc/o.npy"));
  CHECK_THAT(environment_error(scratch.path() / "o.npy"), Contains("directory"));
  CHECK_THAT(refusal([&] { NpyWriter(scratch.path() / "x.npy", {1ll << 40, 1ll << 40}); }), Contains("63 bits"));
  CHECK(scratch.file_count() == 2);
}

TEST_CASE("a full disk is an error of the environment", "[io]") {
  if (!std::filesystem::exists("/dev/full")) {
    WARN("skipped: this machine has no /dev/full");
    return;
  }
  const Scratch scratch;
  // The partial file's name, occupied by a device that has no room.
  const auto path = scratch.path() / "o.npy";
  std::filesystem::create_symlink("/dev/full", path.string() + ".partial-" + std::to_string(::getpid()));
  CHECK_THAT(environment_error(path), Contains("No space"));
  CHECK(scratch.file_count() == 0);
}

TEST_CASE("a text file appears whole or not at all", "[io]") {
  const Scratch scratch;
  scratch.write("text", "before");
  write_file(scratch.path() / "text", "after");
  CHECK(std::filesystem::file_size(scratch.path() / "text") == 5);
  CHECK_THROWS_AS(write_file(scratch.path() / "missing" / "text", "x"), Error);
  CHECK(scratch.file_count() == 1);
  { const TextWriter dropped(scratch.path() / "text"); }
  CHECK(read_file(scratch.path() / "text") == "after");
  CHECK(scratch.file_count() == 1);
}

TEST_CASE("a symbolic link is followed, a pipe written to: both stay", "[io]") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path() / "folder");
  const auto link = scratch.path() / "link", target = scratch.path() / "folder" / "text",
             pipe = scratch.path() / "pipe";
  std::filesystem::create_symlink("folder/text", link);
  for (const char* text : {"first", "second"}) {
    write_file(link, text);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(read_file(target) == text);
  }
  std::filesystem::create_symlink("loop", scratch.path() / "loop");
  CHECK_THROWS_AS(write_file(scratch.path() / "loop", "x"), Error);

  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { std::getline(std::ifstream(pipe), read); });
  write_file(pipe, "through a pipe");
  reader.join();
  CHECK(read == "through a pipe");
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK_THAT(environment_error(pipe), Contains("not a regular file"));
}

TEST_CASE("files and pipes are read up to a bound, devices not at all", "[io]") {
  const Scratch scratch;
  scratch.write("text", "twelve bytes");
  CHECK(read_file_or_pipe(scratch.path() / "text", 12) == "twelve bytes");
  CHECK_THAT(refusal([&] { read_file_or_pipe(scratch.path() / "text", 11); }), Contains("more than 11 B"));
  CHECK_THAT(refusal([&] { read_file_or_pipe(scratch.path(), 11); }), Contains("neither a regular file nor a pipe"));

  const auto pipe = scratch.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string sent(100'000, 'x');  // more than a pipe holds at a time
  std::thread writer([&] { write_file(pipe, sent); });
  CHECK(read_file_or_pipe(pipe, sent.size()) == sent);
  writer.join();
}
