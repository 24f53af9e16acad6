/// What messages show of what came from outside.

#include <string>

#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;

namespace {

std::string shown(const std::string& text) { return Error(ErrorKind::usage, text).what(); }

}  // namespace

TEST_CASE("text in any language stays as it is") {
  for (const char* text : {"plain ~ text", "λ·Σ é ß", "日本語", "\U0001F600", "\u00a0"}) CHECK(shown(text) == text);
}

TEST_CASE("control characters and bytes that are no UTF-8 are written in hexadecimal") {
  const auto check = [](const std::string& text, const std::string& expected) { CHECK(shown(text) == expected); };
  check("a\nb\x1b[31m\x7f", "a\\x0ab\\x1b[31m\\x7f");
  check("\xff.json", "\\xff.json");
  check("\x80", "\\x80");
  check("\xc2\x9b", "\\xc2\\x9b");                    // a control character of eight bits
  check("\xc0\xaf", "\\xc0\\xaf");                    // a longer form than the shortest
  check("\xe0\x80\xaf", "\\xe0\\x80\\xaf");           // the same
  check("\xed\xa0\x80", "\\xed\\xa0\\x80");           // half of a pair of UTF-16
  check("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");  // past the last
  check("é\xc3", "é\\xc3");                           // cut off
  check("\xe6\x97z", "\\xe6\\x97z");
}
