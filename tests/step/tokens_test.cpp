#include "cli/step/tokens.hpp"

#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "kernels/dense/cross_entropy.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

namespace {

class TextFile {
 public:
  explicit TextFile(const std::string& bytes)
      : path_(std::filesystem::temp_directory_path() / ("distattn-tokens-" + std::to_string(std::random_device{}()))) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("step k reads the k-th run of the text, around its end; the last token has no successor", "[step]") {
  const TextFile file("abcdefg");
  const auto source = TokenSource::text(file.path(), 4, 256);
  const std::vector<std::int64_t> all{0, 1, 2, 3}, mine{1, 3};
  REQUIRE(source.batch(0, all).tokens == std::vector<std::int32_t>{'a', 'b', 'c', 'd'});
  REQUIRE(source.batch(0, all).targets == std::vector<std::int32_t>{'b', 'c', 'd', kernels::dense::no_target});
  REQUIRE(source.batch(1, all).tokens == std::vector<std::int32_t>{'e', 'f', 'g', 'a'});
  REQUIRE(source.batch(1, mine).tokens == std::vector<std::int32_t>{'f', 'a'});
  REQUIRE(source.batch(1, mine).targets == std::vector<std::int32_t>{'g', kernels::dense::no_target});
}

TEST_CASE("random tokens fill the vocabulary and differ by seed", "[step]") {
  const auto source = TokenSource::random(1000, 5, 1), other = TokenSource::random(1000, 5, 2);
  std::vector<int> counts(5, 0);
  int equal = 0;
  for (std::int64_t position = 0; position < 1000; ++position) {
    ++counts.at(static_cast<std::size_t>(source.token(0, position)));
    equal += source.token(0, position) == other.token(0, position) ? 1 : 0;
  }
  for (const int count : counts) REQUIRE(count > 140);
  REQUIRE(equal < 300);
}

TEST_CASE("texts that cannot be trained on are refused", "[step]") {
  const TextFile one("a"), none(""), wide("caf\xc3\xa9");
  REQUIRE_THROWS_WITH(TokenSource::text(one.path(), 4, 256), Contains("has 1 bytes"));
  REQUIRE_THROWS_WITH(TokenSource::text(none.path(), 4, 256), Contains("has 0 bytes"));
  REQUIRE_THROWS_WITH(TokenSource::text(wide.path(), 4, 128), Contains("byte 195"));
  REQUIRE_THROWS_WITH(TokenSource::text("/nowhere/to/be/found", 4, 256), Contains("cannot read /nowhere"));
  REQUIRE_THROWS_WITH(TokenSource::text(std::filesystem::temp_directory_path(), 4, 256), Contains("cannot read"));
  REQUIRE_THROWS_WITH(TokenSource::text("/dev/zero", 4, 256), Contains("neither a regular file nor a pipe"));
  REQUIRE_THROWS_WITH(TokenSource::random(1, 256, 0), Contains("seq is 1"));
}
