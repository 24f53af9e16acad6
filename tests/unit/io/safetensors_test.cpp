#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/tools/arrays.hpp"
#include "distattn/error.hpp"
#include "distattn/float16.hpp"
#include "scratch.hpp"

#include "catch.hpp"

using namespace distattn;
using namespace distattn::test;
using Catch::Matchers::Contains;

namespace {

std::string safetensors(std::string_view json, std::string_view data) {
  return little_endian(json.size(), 8) + std::string(json) + std::string(data);
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string refusal_of_file(std::string_view bytes) {
  const Scratch scratch;
  const auto path = scratch.write("t.safetensors", bytes);
  const std::string message = refusal([&] { read_safetensors(path); });
  CHECK(message.find('\n') == message.npos);
  CHECK_THAT(message, Contains("t.safetensors"));
  return message;
}

std::string object(std::initializer_list<std::string> entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

std::string refusal_of_file(std::initializer_list<std::string> entries, std::size_t data_bytes) {
  return refusal_of_file(safetensors(object(entries), std::string(data_bytes, '\0')));
}

const std::string q = entry("q", "F32", "[1,1,2]", "[0,8]");

}  // namespace

TEST_CASE("real activations are read", "[io]") {
  const auto arrays = read_safetensors(DISTATTN_TEST_DATA "/minilm-layer2.safetensors");
  REQUIRE(arrays.size() == 4);
  for (const char* name : {"q", "k", "v"}) {
    const StoredArray& array = arrays.at(name);
    CHECK(array.type() == StoredType::fp16);
    CHECK(array.shape() == std::vector<std::int64_t>{806, 12, 32});
    CHECK(array.origin() == "minilm-layer2.safetensors:" + std::string(name));
    const auto* last = reinterpret_cast<const std::uint16_t*>(array.tensor().row(0, 805, 11));
    CHECK(std::abs(fp16_to_float(last[31])) < 100.f);
  }
  CHECK(arrays.at("cu_seqlens").integers() == std::vector<std::int64_t>{0, 512, 806});
}

TEST_CASE("tensors of other types lie beside those that are asked for", "[io]") {
  const Scratch scratch;
  const std::string json = object({entry("mask", "BOOL", "[3]", "[0,3]"), entry("q", "F32", "[1,1,2]", "[3,11]"),
                                   R"("__metadata__":{"format":"pt"})"});
  const auto arrays = read_safetensors(
      scratch.write("t.safetensors", safetensors(json + "   ", std::string("abc") + bytes_of({1.f, 2.f}))));
  CHECK(arrays.size() == 2);
  CHECK(reinterpret_cast<const float*>(arrays.at("q").tensor().row(0, 0, 0))[1] == 2.f);
  CHECK_THAT(refusal([&] { arrays.at("mask").tensor(); }), Contains("t.safetensors:mask"));
  CHECK_THAT(refusal([&] { arrays.at("mask").integers(); }), Contains("int32"));
}

TEST_CASE("every type of the format is known, and refused only when it is asked for", "[io]") {
  const auto known = GENERATE(table<std::string, int>({{"F4", 4},
                                                       {"F6_E2M3", 6},
                                                       {"F6_E3M2", 6},
                                                       {"F8_E5M2", 8},
                                                       {"F8_E4M3", 8},
                                                       {"F8_E4M3FNUZ", 8},
                                                       {"F8_E5M2FNUZ", 8},
                                                       {"F8_E8M0", 8},
                                                       {"BOOL", 8},
                                                       {"U8", 8},
                                                       {"I8", 8},
                                                       {"I16", 16},
                                                       {"U16", 16},
                                                       {"U32", 32},
                                                       {"U64", 64},
                                                       {"C64", 64}}));
  const std::string& dtype = std::get<0>(known);
  const int bytes = std::get<1>(known);
  const auto file = [&](int size) {
    return safetensors(object({q, entry("w", dtype, "[2,4]", fmt::format("[8,{}]", 8 + size))}),
                       std::string(8 + static_cast<std::size_t>(size), '\0'));
  };
  const Scratch scratch;
  const auto arrays = read_safetensors(scratch.write("t.safetensors", file(bytes)));
  CHECK(arrays.at("q").tensor().head_dim() == 2);
  CHECK_THAT(refusal([&] { arrays.at("w").tensor(); }), Contains("t.safetensors:w is of dtype '" + dtype + "'"));
  CHECK_THAT(refusal_of_file(file(bytes + 1)), Contains(fmt::format("{} needs {} bytes", dtype, bytes)));
}

TEST_CASE("a type that a later version adds does not refuse the file", "[io]") {
  const Scratch scratch;
  const std::string json = object({q, entry("w", "F3_NEW", "[7]", "[8,11]")});
  const auto arrays = read_safetensors(scratch.write("t.safetensors", safetensors(json, std::string(11, '\0'))));
  CHECK(arrays.at("q").tensor().head_dim() == 2);
  CHECK_THAT(refusal([&] { arrays.at("w").tensor(); }), Contains("F3_NEW"));
}

TEST_CASE("what the format's own library passes over is passed over", "[io]") {
  const Scratch scratch;
  const char* const more =
      GENERATE(R"("color":"red")", R"("a":null)", R"("a":[-1,2.5,[true,{"shape":[7]}],"b"])",
               R"("a":{"dtype":"I8","shape":7,"b":{"data_offsets":null}})", R"("a":1,"a":-9223372036854775808)",
               R"("scale":18446744073709551615)", R"("__metadata__":{})");
  const std::string whole = R"("dtype":"F32","shape":[2],"data_offsets":[8,16])";
  for (const std::string& fields : {whole + "," + more, more + ("," + whole)}) {
    INFO(fields);
    const std::string json = object({R"("__metadata__":null)", q, R"("w":{)" + fields + "}"});
    const auto arrays = read_safetensors(scratch.write("t.safetensors", safetensors(json, std::string(16, '\0'))));
    CHECK(arrays.size() == 2);
    CHECK(arrays.at("w").shape() == std::vector<std::int64_t>{2});
  }
}

TEST_CASE("elements that fill no whole bytes are refused", "[io]") {
  CHECK_THAT(refusal_of_file({q, entry("w", "F4", "[3]", "[8,10]")}, 10), Contains("whole bytes"));
  CHECK_THAT(refusal_of_file({q, entry("w", "F6_E2M3", "[2,1]", "[8,10]")}, 10), Contains("whole bytes"));
}

TEST_CASE("a zero byte does not end a header", "[io]") {
  CHECK_THAT(refusal_of_file(safetensors(object({q}) + std::string(2, '\0'), std::string(8, '\0'))),
             Contains("zero byte"));
  CHECK_THAT(refusal_of_file(safetensors(object({q}) + std::string("\0,", 2), std::string(8, '\0'))),
             Contains("zero byte"));
}

TEST_CASE("tensors without elements take no room in any order", "[io]") {
  const Scratch scratch;
  const std::string json = object({entry("none", "F32", "[0,4]", "[8,8]"), q, entry("k", "F16", "[2]", "[8,12]")});
  CHECK(read_safetensors(scratch.write("t.safetensors", safetensors(json, std::string(12, '\0')))).size() == 3);
}

TEST_CASE(".safetensors files that are cut or too long are refused", "[io]") {
  const std::string whole = safetensors(object({q}), std::string(8, '\0'));
  CHECK_THAT(refusal_of_file(whole + '\0'), Contains("longer"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO("first " << length << " bytes");
    CHECK_FALSE(refusal_of_file(whole.substr(0, length)).empty());
  }
}

TEST_CASE("header lengths that cannot be are refused", "[io]") {
  CHECK_THAT(refusal_of_file(little_endian(0xffffffffffffffff, 8) + "{}"), Contains("18446744073709551615"));
  CHECK_THAT(refusal_of_file(little_endian(1ull << 63, 8) + "{}"), Contains("claims a header"));
  CHECK_THAT(refusal_of_file(little_endian(3, 8) + "{}"), Contains("claims a header of 3"));
  CHECK_THAT(refusal_of_file(little_endian(0, 8) + "{}"), Contains("not a JSON object"));
  CHECK_THAT(refusal_of_file(little_endian(2, 8) + "[]"), Contains("not a JSON object"));
  CHECK_THAT(refusal_of_file("\x93NUMPY"), Contains("7 bytes") || Contains("6 bytes"));
}

TEST_CASE("offsets must tile the data", "[io]") {
  CHECK_THAT(refusal_of_file({q, entry("k", "F32", "[1,1,2]", "[4,12]")}, 12), Contains("overlapping"));
  CHECK_THAT(refusal_of_file({q, entry("k", "F32", "[1,1,2]", "[0,8]")}, 8), Contains("overlapping"));
  CHECK_THAT(refusal_of_file({q, entry("k", "F32", "[1,1,2]", "[12,20]")}, 20), Contains("hole"));
  CHECK_THAT(refusal_of_file({entry("k", "F32", "[1,1,2]", "[4,12]")}, 12), Contains("hole"));
  CHECK_THAT(refusal_of_file({q, entry("k", "F32", "[1,1,2]", "[8,16]")}, 12), Contains("truncated"));
  CHECK_THAT(refusal_of_file({entry("k", "F32", "[1,1,2]", "[8,0]")}, 8), Contains("data_offsets"));
  CHECK_THAT(refusal_of_file({entry("k", "F32", "[1,1,2]", "[0,12]")}, 12), Contains("needs 8 bytes"));
  CHECK_THAT(refusal_of_file({entry("k", "F32", "[1,1,2]", "[0]")}, 8), Contains("data_offsets"));
  CHECK_THAT(refusal_of_file({entry("k", "F32", "[1,1,2]", "[0,8,8]")}, 8), Contains("data_offsets"));
}

TEST_CASE("shapes that cannot be are refused", "[io]") {
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[-1,1,2]", "[0,8]")}, 8), Contains("negative"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[4294967296,4294967296,1]", "[0,0]")}, 0), Contains("63 bits"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[2305843009213693953,4,2]", "[0,32]")}, 32), Contains("63 bits"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[9223372036854775808]", "[0,8]")}, 8), Contains("63 bits"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[1e9,1,2]", "[0,8]")}, 8), Contains("not an integer"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[1,1,\"2\"]", "[0,8]")}, 8), Contains("string"));
  CHECK_THAT(refusal_of_file({entry("q", "F32", "[[1],1,2]", "[0,8]")}, 8), Contains("list"));
}

TEST_CASE("headers of another form are refused", "[io]") {
  CHECK_THAT(refusal_of_file({q, q}, 8), Contains("'q' appears twice"));
  CHECK_THAT(refusal_of_file({R"("q":{"dtype":"F32","dtype":"F16","shape":[],"data_offsets":[0,2]})"}, 2),
             Contains("'dtype' of 'q' appears twice"));
  CHECK_THAT(refusal_of_file({R"("q":{"dtype":"F32","shape":[2]})"}, 8), Contains("lacks"));
  CHECK_THAT(refusal_of_file({R"("q":{"dtype":"F32","shape":[2],"color":"red"})"}, 8), Contains("lacks"));
  CHECK_THAT(refusal_of_file({R"("q":{"dtype":null,"shape":[2],"data_offsets":[0,8]})"}, 8), Contains("null"));
  CHECK_THAT(refusal_of_file({R"("__metadata__":{"a":null})", q}, 8), Contains("null"));
  CHECK_THAT(refusal_of_file({R"("q":7)"}, 0), Contains("number"));
  CHECK_THAT(refusal_of_file({R"("q":null)"}, 0), Contains("null"));
  CHECK_THAT(refusal_of_file({R"("__metadata__":{"a":{"b":"c"}})"}, 0), Contains("object"));
  CHECK_THAT(refusal_of_file(safetensors("{\"q\":", "")), Contains("broken JSON at byte"));
  CHECK_THAT(refusal_of_file(safetensors("{} {}", "")), Contains("broken JSON"));
  CHECK_THAT(refusal_of_file(safetensors("{\"\xff\":1}", "")), Contains("broken JSON"));
}

TEST_CASE("deep nesting ends at its first level too many", "[io]") {
  CHECK_THAT(refusal_of_file(safetensors(R"({"q":)" + std::string(1'000'000, '['), "")), Contains("list"));
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"q\":{";
  CHECK_THAT(refusal_of_file(safetensors(objects, "")), Contains("broken JSON"));
  CHECK_THAT(refusal_of_file(safetensors(R"({"q":{"shape":{"q":)", "")), Contains("object"));
}
