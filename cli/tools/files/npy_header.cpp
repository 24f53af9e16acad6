#include "cli/tools/files/npy_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "cli/tools/files/stored.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_axes = 32;

/// Reads the header's Python literal, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", left to right, in
/// the spellings that numpy reads: also what Python 2 wrote, u'descr' and 3L.
class Literal {
 public:
  Literal(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  [[noreturn]] void fail(std::string_view why) const {
    refuse(fmt::format("{} is not a readable .npy file ({}): write it with numpy.save", origin_, why));
  }

  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("its header lacks a '{}'", token));
  }
  bool at_end() {
    skip_blanks();
    return text_.empty();
  }

  std::string_view quoted() {
    skip_blanks();
    if (text_.starts_with("u'") || text_.starts_with("u\"")) text_.remove_prefix(1);
    const std::string_view quote = accept("'") ? "'" : "\"";
    if (quote == "\"") expect(quote);
    const std::size_t length = text_.find(quote);
    if (length == text_.npos) fail("its header ends inside a string");
    const std::string_view value = text_.substr(0, length);
    text_.remove_prefix(length + 1);
    return value;
  }

  bool boolean() {
    if (accept("True")) return true;
    if (!accept("False")) fail("fortran_order is neither True nor False");
    return false;
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    expect("(");
    while (!accept(")")) {
      extents.push_back(extent());
      if (extents.size() > max_axes) fail(fmt::format("its shape has more than {} axes", max_axes));
      if (!accept(",")) {
        expect(")");
        if (extents.size() == 1) fail("its shape is a number in parentheses, not a tuple: a comma is missing");
        break;
      }
    }
    return extents;
  }

 private:
  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\f\r\n"), text_.size())); }

  std::int64_t extent() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail("an extent of its shape passes 63 bits");
    if (error != std::errc{}) fail("its shape is not a tuple of integers");
    // To Python 2 it was octal, later ones refuse it; zeros alone are 0 to all of them.
    if (value != 0 && *text_.data() == '0') fail("an extent of its shape begins with a zero");
    if (value < 0) fail(fmt::format("its shape has the negative extent {}", value));
    text_.remove_prefix(index(end - text_.data()));
    if (text_.starts_with('L') || text_.starts_with('l')) text_.remove_prefix(1);
    return value;
  }

  std::string_view text_;
  const std::string& origin_;
};

/// A dtype as numpy.dtype() takes it: kind and size, a letter or a name, behind a byte order.
std::optional<StoredType> little_endian_type(std::string_view descr) {
  static constexpr std::pair<std::string_view, StoredType> names[] = {
      {"f8", StoredType::fp64},   {"d", StoredType::fp64},      {"float64", StoredType::fp64},
      {"f4", StoredType::fp32},   {"f", StoredType::fp32},      {"float32", StoredType::fp32},
      {"f2", StoredType::fp16},   {"e", StoredType::fp16},      {"float16", StoredType::fp16},
      {"i4", StoredType::int32},  {"i", StoredType::int32},     {"int32", StoredType::int32},
      {"i8", StoredType::int64},  {"q", StoredType::int64},     {"int64", StoredType::int64},
      {"half", StoredType::fp16}, {"single", StoredType::fp32}, {"double", StoredType::fp64},
      {"float", StoredType::fp64}};
  const bool is_native = descr.starts_with('=') || descr.starts_with('|');  // as a little-endian machine reads it
  if (is_native || descr.starts_with('<')) descr.remove_prefix(1);
  for (const auto& [name, type] : names) {
    if (descr == name) return type;
  }
  return std::nullopt;
}

StoredType type_of(std::string_view descr, const std::string& origin) {
  if (const auto type = little_endian_type(descr)) return *type;
  const bool object = descr.find('O') != descr.npos;
  const bool big_endian = descr.starts_with('>');
  refuse(fmt::format("{} has dtype '{}' ({}): convert it to little-endian float16, float32 or float64", origin, descr,
                     object       ? "Python objects are never read"
                     : big_endian ? "big-endian"
                                  : "not supported"));
}

/// Where the literal begins and how long it is, by the version in bytes 6 and 7.
std::pair<std::size_t, std::size_t> literal_extent(std::span<const std::byte> file, const Literal& at) {
  if (file.size() < 10) at.fail("it ends inside its header");
  const int major = std::to_integer<int>(file[6]), minor = std::to_integer<int>(file[7]);
  if (major < 1 || major > 3 || minor != 0) at.fail(fmt::format("format version {}.{} is unknown", major, minor));
  const std::size_t width = major == 1 ? 2 : 4;
  if (file.size() < 8 + width) at.fail("it ends inside its header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i) length |= std::to_integer<std::size_t>(file[8 + i]) << (8 * i);
  if (length > file.size() - 8 - width) {
    at.fail(fmt::format("its header claims {} bytes, the file has {}", length, file.size()));
  }
  return {8 + width, length};
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const Literal whole(text, origin);
  if (!text.starts_with(magic)) whole.fail("it does not begin as one");
  const auto [begin, length] = literal_extent(file, whole);

  Literal literal(text.substr(begin, length), origin);
  std::optional<StoredType> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
  literal.expect("{");
  while (!literal.accept("}")) {
    const std::string_view key = literal.quoted();
    literal.expect(":");
    if (key == "descr" && !type) {
      if (literal.accept("[") || literal.accept("(")) literal.fail("structured dtypes are not supported");
      type = type_of(literal.quoted(), origin);
    } else if (key == "fortran_order" && !fortran_order) {
      fortran_order = literal.boolean();
    } else if (key == "shape" && !shape) {
      shape = literal.shape();
    } else {
      literal.fail(fmt::format("its header has an unknown or repeated entry '{}'", key));
    }
    if (!literal.accept(",")) {
      literal.expect("}");
      break;
    }
  }
  if (!literal.at_end()) literal.fail("its header goes on after the closing brace");
  if (!type || !fortran_order || !shape) literal.fail("its header lacks descr, fortran_order or shape");
  return {*type, *fortran_order, std::move(*shape), begin + length};
}

std::string npy_header(std::span<const std::int64_t> shape) {
  constexpr std::size_t preamble = 10, alignment = 64;
  std::string literal = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}",
                                    fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  literal.append((2 * alignment - 1 - (preamble + literal.size()) % alignment) % alignment, ' ');
  literal += '\n';
  const std::size_t length = literal.size();
  std::string header(magic);
  header += {'\1', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + literal;
}

}  // namespace distattn
