/// Rows: what a field is in JSON and in a table, and what is said about it.

#include "core/src/fields.hpp"

#include "catch.hpp"
#include "distattn/types.hpp"

namespace distattn {
namespace {

struct Part {
  double error = unknown_number;
  std::optional<int> token;
};

void fields_of(const Part& part, RowFields& field) {
  field({"error", units::error, "Its error."}, part.error);
  field({"token", units::none, "Its token."}, part.token);
}

struct Row {
  Pass pass = Pass::backward;
  double median_s = 0.25, gflops = unknown_number;
  std::int64_t bytes = 2048, most = std::int64_t{1} << 60;
  bool ok = false;
  std::variant<bool, Part> backward = false;
  std::optional<std::vector<Part>> parts;
  std::vector<std::pair<std::string, std::string>> variables;
};

void fields_of(const Row& row, RowFields& field) {
  field({"pass", units::none, "The pass."}, row.pass);
  field({"median_s", units::seconds, "Its time."}, row.median_s);
  field({"gflops", units::gflops, "Its rate."}, row.gflops);
  field({"bytes", units::bytes, "Its bytes."}, row.bytes);
  field({"most", units::none, "A large number."}, row.most);
  field({"ok", units::none, "Whether it is right."}, row.ok);
  field({"backward", units::none, "The other pass."}, row.backward);
  field({"parts", units::none, "Its parts."}, row.parts);
  field({"variables", units::none, "Names and values."}, row.variables);
}

TEST_CASE("A row's JSON has its fields in order, and null for what is not known", "[fields]") {
  CHECK(RowFields::json_of(Row{}).dump() ==
        R"({"pass":"backward","median_s":0.25,"gflops":null,"bytes":2048,"most":1152921504606846976,"ok":false,)"
        R"("backward":false,"parts":null,"variables":{}})");
  Row row;
  row.backward = Part{0.5, 3};
  row.parts = {{std::numeric_limits<double>::infinity(), std::nullopt}};
  row.variables = {{"B", "2"}, {"A", "1"}};
  CHECK(RowFields::json_of(row).dump() ==
        R"({"pass":"backward","median_s":0.25,"gflops":null,"bytes":2048,"most":1152921504606846976,"ok":false,)"
        R"("backward":{"error":0.5,"token":3},"parts":[{"error":null,"token":null}],"variables":{"B":"2","A":"1"}})");
}

TEST_CASE("A table shows a field in its unit", "[fields]") {
  const std::vector<Field> fields = RowFields::of(Row{});
  const auto text = [&](std::size_t i) { return fields.at(i).text; };
  CHECK(text(0) == "backward");
  CHECK(text(1) == "250.000 ms");
  CHECK(text(2) == unknown_text);
  CHECK(text(3) == "2.00 KiB");
  CHECK(text(4) == "1152921504606846976");
  CHECK(text(5) == "false");
  CHECK(RowFields::of(Part{std::numeric_limits<double>::infinity(), 3}).front().text == "inf");
  CHECK(RowFields::of(Part{}).back().text == unknown_text);
}

TEST_CASE("Fields of objects and lists are known where a row has none", "[fields]") {
  const std::vector<Field> fields = RowFields::of(Row{});
  REQUIRE(fields.size() == 9);
  CHECK(fields[6].inner.size() == 2);
  CHECK_FALSE(fields[6].is_list);
  CHECK(fields[7].inner.size() == 2);
  CHECK(fields[7].is_list);
  CHECK(std::string(fields[7].inner[1].about.meaning) == "Its token.");
  CHECK(fields[8].inner.empty());
  CHECK_FALSE(fields[8].is_list);
}

}  // namespace
}  // namespace distattn
