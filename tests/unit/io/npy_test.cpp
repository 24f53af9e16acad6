#include "cli/tools/arrays.hpp"
#include "distattn/error.hpp"
#include "scratch.hpp"

#include "catch.hpp"

using namespace distattn;
using namespace distattn::test;
using Catch::Matchers::Contains;

namespace {

/// A .npy file with this literal as its header.
std::string npy(std::string_view literal, std::string_view values, int major = 1) {
  std::string text(literal);
  text += '\n';
  return std::string("\x93NUMPY") + static_cast<char>(major) + '\0' + little_endian(text.size(), major == 1 ? 2 : 4) +
         text + std::string(values);
}

std::string header(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }";
}

std::string refusal_of_array(std::string_view bytes) {
  const Scratch scratch;
  const auto path = scratch.write("q.npy", bytes);
  const std::string message = refusal([&] { read_npy(path); });
  CHECK(message.find('\n') == message.npos);
  CHECK_THAT(message, Contains("q.npy"));
  return message;
}

float element(const ConstTensorView& view, std::int64_t s, std::int64_t h, std::int64_t x) {
  return reinterpret_cast<const float*>(view.row(0, s, h))[x * view.strides[3]];
}

}  // namespace

TEST_CASE("every version and float type of .npy is read", "[io]") {
  const Scratch scratch;
  const std::string values(std::size_t{2 * 3 * 4} * 8, '\0');
  const auto [descr, type, bytes] = GENERATE(table<std::string, StoredType, std::size_t>(
      {{"<f2", StoredType::fp16, 2}, {"<f4", StoredType::fp32, 4}, {"<f8", StoredType::fp64, 8}}));
  const int version = GENERATE(1, 2, 3);
  const auto path = scratch.write("q.npy", npy(header(descr, "(2, 3, 4)"), values.substr(0, 24 * bytes), version));
  const StoredArray array = read_npy(path);
  CHECK(array.type() == type);
  CHECK(array.shape() == std::vector<std::int64_t>{2, 3, 4});
  CHECK(array.origin() == "q.npy");
  CHECK_FALSE(array.has_batch());
  CHECK(array.tensor().shape == std::array<std::int64_t, 4>{1, 2, 3, 4});
}

TEST_CASE("headers are read in every spelling that numpy reads", "[io]") {
  const std::string_view literal = GENERATE(
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 1L, 2L), }",     // Python 2
      "{u'descr': u'<f4', u'fortran_order': False, u'shape': (2l, 1L, 2), }",  // the same with unicode_literals
      "{'shape': (2, 1, 2), 'fortran_order': False, 'descr': '<f4'}",          // another order, no last comma
      "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,1,2)}",         // other quotes, no blanks
      " {\t'descr' :\t'<f4' ,\r\n 'fortran_order' : False , 'shape' : ( 2 , 1 , 2 , ) }\t \r\n\f ",
      "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 1, 2), }",
      "{'descr': '|f4', 'fortran_order': False, 'shape': (2, 1, 2), }",
      "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 1, 2), }",
      "{'descr': 'float32', 'fortran_order': False, 'shape': (2, 1, 2), }");
  const int version = GENERATE(1, 2, 3);
  INFO(literal);
  const Scratch scratch;
  const auto array = read_npy(scratch.write("q.npy", npy(literal, bytes_of({0.f, 1.f, 10.f, 11.f}), version)));
  CHECK(array.type() == StoredType::fp32);
  CHECK(array.shape() == std::vector<std::int64_t>{2, 1, 2});
  CHECK(element(array.tensor(), 1, 0, 1) == 11.f);
}

TEST_CASE("both orders of .npy give the same elements", "[io]") {
  const Scratch scratch;
  const auto c = read_npy(scratch.write("c.npy", npy(header("<f4", "(2, 1, 2)"), bytes_of({0.f, 1.f, 10.f, 11.f}))));
  const auto f =
      read_npy(scratch.write("f.npy", npy(header("<f4", "(2, 1, 2)", "True"), bytes_of({0.f, 10.f, 1.f, 11.f}))));
  for (int s = 0; s < 2; ++s) {
    for (int x = 0; x < 2; ++x) {
      CHECK(element(c.tensor(), s, 0, x) == static_cast<float>(10 * s + x));
      CHECK(element(f.tensor(), s, 0, x) == static_cast<float>(10 * s + x));
    }
  }
}

TEST_CASE("rank 4 is a batch", "[io]") {
  const Scratch scratch;
  const auto array = read_npy(scratch.write("q.npy", npy(header("<f4", "(2, 3, 1, 8)"), std::string(192, '\0'))));
  CHECK(array.has_batch());
  CHECK(array.tensor().strides == std::array<std::int64_t, 4>{24, 8, 8, 1});
}

TEST_CASE("integers are for cu_seqlens only", "[io]") {
  const Scratch scratch;
  const auto narrow = read_npy(scratch.write("a.npy", npy(header("<i4", "(3,)"), bytes_of<std::int32_t>({0, 5, -2}))));
  CHECK(narrow.integers() == std::vector<std::int64_t>{0, 5, -2});
  const auto wide = read_npy(scratch.write("b.npy", npy(header("<i8", "(1,)"), bytes_of<std::int64_t>({1ll << 40}))));
  CHECK(wide.integers() == std::vector<std::int64_t>{1ll << 40});
  CHECK_THAT(refusal([&] { narrow.tensor(); }), Contains("int32"));
  const auto real = read_npy(scratch.write("c.npy", npy(header("<f4", "(1,)"), bytes_of({1.f}))));
  CHECK_THAT(refusal([&] { real.integers(); }), Contains("int32"));
  CHECK_THAT(refusal([&] { real.tensor(); }), Contains("(1)"));
}

TEST_CASE("values off their boundary are readable", "[io]") {
  const Scratch scratch;
  const std::string blanks = GENERATE("", " ", "  ", "   ");
  const auto path = scratch.write("q.npy", npy(header("<f4", "(1, 1, 2)") + blanks, bytes_of({3.f, 4.f})));
  const StoredArray array = read_npy(path);
  CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % alignof(float) == 0);
  CHECK(element(array.tensor(), 0, 0, 1) == 4.f);
}

TEST_CASE("a shape without elements has no bytes", "[io]") {
  const Scratch scratch;
  CHECK(read_npy(scratch.write("q.npy", npy(header("<f4", "(0, 3, 8)"), ""))).tensor().sequence() == 0);
}

TEST_CASE(".npy files that are cut or too long are refused", "[io]") {
  const std::string whole = npy(header("<f4", "(2, 1, 2)"), std::string(16, '\0'));
  CHECK_THAT(refusal_of_array(whole.substr(0, whole.size() - 1)), Contains("truncated"));
  CHECK_THAT(refusal_of_array(whole + '\0'), Contains("longer"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO("first " << length << " bytes");
    CHECK_FALSE(refusal_of_array(whole.substr(0, length)).empty());
  }
}

TEST_CASE(".npy shapes that cannot be are refused", "[io]") {
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(-2, 1, 2)"), "")), Contains("negative"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(4294967296, 4294967296, 1)"), "")), Contains("63 bits"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(2305843009213693953, 4, 2)"), std::string(32, '\0'))),
             Contains("63 bits"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(0, 9223372036854775807, 2)"), "")), Contains("63 bits"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(99999999999999999999, 1, 1)"), "")), Contains("63 bits"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(1000000000000, 8, 64)"), "")), Contains("truncated"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(2.5, 1, 1)"), "")), Contains("','") || Contains("')'"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "[2, 1, 1]"), "")), Contains("'('"));
  // Neither is one to numpy: 06 was 6 or octal by Python's version, and (2) is a number.
  for (const char* const shape : {"(06, 2, 8)", "(1, 02L)", "(1, 010)"})
    CHECK_THAT(refusal_of_array(npy(header("<f4", shape), "")), Contains("begins with a zero"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(2)"), std::string(8, '\0'))), Contains("comma is missing"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(00, 0, 1)"), std::string(4, '\0'))), Contains("longer"));
  std::string ones = "(";
  for (int i = 0; i < 40; ++i) ones += "1, ";
  CHECK_THAT(refusal_of_array(npy(header("<f4", ones + ")"), std::string(4, '\0'))), Contains("axes"));
}

TEST_CASE(".npy types that attention does not read are refused", "[io]") {
  const std::string eight(8, '\0');
  CHECK_THAT(refusal_of_array(npy(header(">f4", "(1, 1, 2)"), eight)), Contains("big-endian"));
  CHECK_THAT(refusal_of_array(npy(header("|O", "(1, 1, 1)"), eight)), Contains("objects"));
  CHECK_THAT(refusal_of_array(npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 1, 1)}", eight)),
             Contains("structured"));
  for (const char* descr : {"<c8", "<U2", "|i1", "|b1", "<f16", "", "float128", "<", "=", "|V4"}) {
    INFO(descr);
    CHECK_THAT(refusal_of_array(npy(header(descr, "(1, 1, 2)"), eight)), Contains("not supported"));
  }
}

TEST_CASE(".npy headers that are not one are refused", "[io]") {
  CHECK_THAT(refusal_of_array("PK\3\4 a zip file, as .npz is"), Contains("begin"));
  CHECK_THAT(refusal_of_array(std::string("\x93NUMPY\4\0", 8) + std::string(64, '\0')), Contains("version 4.0"));
  CHECK_THAT(refusal_of_array(std::string("\x93NUMPY\2\0", 8) + little_endian(0xffffffff, 4) + "{"),
             Contains("4294967295"));
  CHECK_THAT(refusal_of_array(npy("{'descr': '<f4', 'fortran_order': False}", "")), Contains("lacks"));
  CHECK_THAT(refusal_of_array(npy("{'descr': '<f4', 'descr': '<f8'}", "")), Contains("repeated"));
  CHECK_THAT(refusal_of_array(npy("{'descr': '<f4', 'color': 'red'}", "")), Contains("color"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(1, 1, 1)") + " import os", std::string(4, '\0'))),
             Contains("goes on"));
  CHECK_THAT(refusal_of_array(npy("{'descr': '<f4", "")), Contains("string"));
  CHECK_THAT(refusal_of_array(npy(header("<f4", "(1, 1, 1)", "Maybe"), "")), Contains("fortran_order"));
}

TEST_CASE("paths that are no file are refused", "[io]") {
  const Scratch scratch;
  CHECK_THAT(refusal([&] { read_npy(scratch.path() / "missing.npy"); }), Contains("No such file"));
  CHECK_THAT(refusal([&] { read_npy(scratch.path()); }), Contains("regular"));
  CHECK_THAT(refusal([&] { read_npy("/dev/zero"); }), Contains("regular"));
}

TEST_CASE("a mapped file is known by its addresses, and by what was written to it since", "[io]") {
  const Scratch scratch;
  const auto path = scratch.write("q.npy", npy(header("<f4", "(2,)"), bytes_of({0.f, 1.f})));
  {
    const StoredArray array = read_npy(path);
    CHECK(mapped_file_at(array.data()) == path.string());
    CHECK(mapped_file_at(&path) == nullptr);
    require_unchanged_files();
    std::filesystem::resize_file(path, 100);
    CHECK_THROWS_WITH(require_unchanged_files(), Contains("changed while it was read"));
  }
  require_unchanged_files();
}
