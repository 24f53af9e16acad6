#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "cli/tools/arrays.hpp"
#include "cli/tools/text_writer.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
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

TEST_CASE("a process that ends without unwinding can remove its temporary files", "[io]") {
  const Scratch scratch;
  const NpyWriter writer(scratch.path() / "o.npy", {1024});
  CHECK(scratch.file_count() == 1);
  static_cast<void>(remove_temporary_files());
  CHECK(scratch.file_count() == 0);
}

TEST_CASE("two writers of one name have a file each, and the last that commits wins", "[io]") {
  const Scratch scratch;
  const auto path = scratch.path() / "o.npy";
  const std::vector<float> ones(8, 1.f), twos(8, 2.f);
  NpyWriter first(path, {8}), second(path, {8});
  CHECK(first.tag() != second.tag());
  second.write(0, twos.data(), 8);
  second.commit();
  first.write(0, ones.data(), 8);  // into its own file, not into that which has the name now
  CHECK(*reinterpret_cast<const float*>(read_npy(path).data()) == 2.f);
  first.commit();
  CHECK(*reinterpret_cast<const float*>(read_npy(path).data()) == 1.f);
  CHECK(scratch.file_count() == 1);
}

TEST_CASE("a set of files is joined by its makers' tags and renamed together", "[io]") {
  const Scratch scratch;
  const std::vector<float> halves(4, 0.5f);
  std::vector<NpyWriter> made, joined;
  for (const char* const name : {"o.npy", "lse.npy"}) {
    made.emplace_back(scratch.path() / name, std::vector<std::int64_t>{8});
    joined.push_back(NpyWriter::join(scratch.path() / name, {8}, made.back().tag()));
    made.back().write(0, halves.data(), 4);
    joined.back().write(4, halves.data(), 4);
  }
  NpyWriter::commit_all(joined, scratch.path());
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "o.npy"));
  NpyWriter::commit_all(made, scratch.path());
  for (const char* const name : {"o.npy", "lse.npy"}) {
    const StoredArray array = read_npy(scratch.path() / name);
    CHECK(std::count(reinterpret_cast<const float*>(array.data()), reinterpret_cast<const float*>(array.data()) + 8,
                     0.5f) == 8);
  }
  CHECK(scratch.file_count() == 2);
  CHECK_THROWS_AS(NpyWriter::join(scratch.path() / "o.npy", {8}, "no-such-tag"), Error);
}

TEST_CASE("what a dead writer left is removed by the next, what a living one writes is not", "[io]") {
  const Scratch scratch;
  const auto path = scratch.path() / "o.npy";
  const pid_t child = ::fork();
  if (child == 0) {
    const NpyWriter left(path, {1024});
    ::_exit(0);  // as SIGKILL would, without unwinding
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(scratch.file_count() == 1);
  scratch.write("o.npy.partial-of somebody else", "");
  const NpyWriter living(path, {8});
  CHECK(scratch.file_count() == 2);
  const NpyWriter next(path, {8});
  CHECK(scratch.file_count() == 3);
}

TEST_CASE("a name of the greatest length has a temporary name, too", "[io]") {
  const Scratch scratch;
  const std::string name(255, 'n');
  write_file(scratch.path() / name, "text");
  CHECK(read_file(scratch.path() / name) == "text");
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

TEST_CASE("a file that may not become so large is an error of the environment", "[io]") {
  const Scratch scratch;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{100, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string error = environment_error(scratch.path() / "o.npy");
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK_THAT(error, Contains("limit of file sizes"));
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
