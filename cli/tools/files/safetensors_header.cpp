#include "cli/tools/files/safetensors_header.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "distattn/error.hpp"

namespace distattn {
namespace {

constexpr std::string_view metadata = "__metadata__";

/// Takes the header event by event, so that nesting and size cost nothing before they are refused. Like the library of
/// the format it passes over what a tensor's entry says beyond dtype, shape and data_offsets.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(std::map<std::string, SafetensorsEntry>& entries, const std::string& origin)
      : entries_(entries), origin_(origin) {}

  bool start_object(std::size_t) override {
    if (is_passed_over()) return enter();
    if (depth_ > 1) fail("an object where a value is expected");
    ++depth_;
    fields_.clear();
    return true;
  }
  bool end_object() override {
    --depth_;
    if (is_passed_over()) return true;
    if (depth_ == 1 && name_ != metadata && fields_.size() != 3) {
      fail(fmt::format("'{}' lacks dtype, shape or data_offsets", name_));
    }
    return true;
  }
  bool key(std::string& key) override {
    if (depth_ == 1) {
      name_ = key;
      if (!names_.insert(key).second) fail(fmt::format("'{}' appears twice", key));
      return true;
    }
    if (depth_ > 2) return true;
    field_ = key;
    if (is_passed_over()) return true;
    if (!fields_.insert(key).second) fail(fmt::format("'{}' of '{}' appears twice", key, name_));
    return true;
  }
  bool string(std::string& value) override {
    if (is_passed_over()) return true;
    if (depth_ != 2 || (name_ != metadata && field_ != "dtype")) fail("a string where none is expected");
    if (name_ != metadata) entries_[name_].dtype = value;
    return true;
  }
  bool start_array(std::size_t) override {
    if (is_passed_over()) return enter();
    if (depth_ != 2 || name_ == metadata || field_ == "dtype") fail("a list where none is expected");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (is_passed_over()) return true;
    if (depth_ != 3) fail("a number where none is expected");
    if (value > std::numeric_limits<std::int64_t>::max()) fail(fmt::format("{} passes 63 bits", value));
    SafetensorsEntry& entry = entries_[name_];
    (field_ == "shape" ? entry.shape : entry.offsets).push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(std::int64_t value) override {
    return is_passed_over() || fail(fmt::format("the negative number {}", value));
  }
  bool number_float(double, const std::string& text) override {
    return is_passed_over() || fail(fmt::format("{} is not an integer", text));
  }
  bool boolean(bool) override { return is_passed_over() || fail("a boolean where none is expected"); }
  bool null() override {
    const bool is_no_metadata = depth_ == 1 && name_ == metadata;
    return is_no_metadata || is_passed_over() || fail("a null where none is expected");
  }
  bool binary(nlohmann::json::binary_t&) override { fail("binary data where none is expected"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("broken JSON at byte {}", position));
  }

  [[noreturn]] bool fail(std::string_view why) const {
    refuse(fmt::format("{} is not a readable .safetensors file (its header: {}): write it with safetensors", origin_,
                       why));
  }

 private:
  bool enter() {
    ++depth_;
    return true;
  }
  bool is_passed_over() const {
    return depth_ >= 2 && name_ != metadata && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets";
  }

  std::map<std::string, SafetensorsEntry>& entries_;
  const std::string& origin_;
  int depth_ = 0;
  std::string name_, field_;
  std::set<std::string> names_, fields_;
};

}  // namespace

std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::string_view json, const std::string& origin) {
  std::map<std::string, SafetensorsEntry> entries;
  Reader reader(entries, origin);
  // nlohmann's lexer takes one for the end, whatever follows.
  if (const std::size_t zero = json.find('\0'); zero != json.npos) reader.fail(fmt::format("a zero byte at {}", zero));
  nlohmann::json::sax_parse(json, &reader);
  return entries;
}

}  // namespace distattn
