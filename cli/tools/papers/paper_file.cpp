#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/tools/papers.hpp"
#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

using nlohmann::json;

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

struct Reason {
  std::string text;
  std::optional<PaperClaim> claim;
};

/// "differs", where it is there.
std::optional<PaperClaim> read_claim(JsonFields& fields) {
  const json* range = fields.find("differs");
  if (range == nullptr) return {};
  if (!range->is_array() || range->size() != 2) fields.fail("differs", "is no range", "write [least, most]");
  const PaperClaim claim{range->at(0).get<double>(), range->at(1).get<double>()};
  if (claim.least > claim.most || claim.least * claim.most <= 0) {
    fields.fail("differs", fmt::format("is [{}, {}]", claim.least, claim.most),
                "write the smaller first and both on one side of 0");
  }
  return claim;
}

std::map<std::string, Reason> read_reasons(const json& object, const std::string& origin) {
  std::map<std::string, Reason> reasons;
  for (const auto& [name, value] : object.items()) {
    JsonFields fields(value, origin, "reasons." + name);
    Reason reason{fields.text("text"), read_claim(fields)};
    fields.finish();
    reasons.emplace(name, std::move(reason));
  }
  return reasons;
}

PaperBound read_bound(JsonFields& fields) {
  if (fields.find("bound") == nullptr) return PaperBound::equal;
  for (const PaperBound bound : {PaperBound::at_least, PaperBound::at_most}) {
    if (fields.text("bound") == name_of(bound)) return bound;
  }
  fields.fail("bound", fmt::format("is '{}'", fields.text("bound")), "write at least or at most");
}

class Reader {
 public:
  using Compute = std::function<PaperValue(const std::string&)>;

  Reader(const json& file, const std::string& origin, const Compute& compute)
      : origin_(origin), compute_(compute), fields_(file, origin) {
    if (const json* methods = fields_.find("methods")) methods_ = *methods;
    if (const json* reasons = fields_.find("reasons")) reasons_ = read_reasons(*reasons, origin);
  }

  PaperTable table() {
    PaperTable table{fields_.text("title"), fields_.text("source"), fields_.text("scope"), {}};
    for (const json& row : fields_.at("rows")) table.rows.push_back(read_row(row));
    fields_.finish();
    return table;
  }

 private:
  PaperRow read_row(const json& object) {
    JsonFields fields(object, origin_);
    PaperRow row;
    row.what = fields.text("what");
    row.where = fields.text("where");
    const json& published = fields.at("published");
    row.published = published.is_null() ? missing : published.get<double>();
    row.bound = read_bound(fields);
    const json& ours = fields.at("ours");
    const PaperValue value = ours.is_null() ? PaperValue{missing, PaperKind::absent} : quantity(ours);
    row.ours = value.value;
    const json* fitted = fields.find("fitted");
    row.kind = fitted != nullptr && fitted->get<bool>() ? PaperKind::calibrated : value.kind;
    if (fields.find("unit") != nullptr) row.unit = fields.text("unit");
    if (fields.find("because") != nullptr) {
      const auto found = reasons_.find(fields.text("because"));
      if (found == reasons_.end()) fields.fail("because", "names no reason", "add it to reasons");
      row.note = found->second.text;
      row.claim = found->second.claim;
    }
    if (const auto own = read_claim(fields)) row.claim = own;
    fields.finish();
    return row;
  }

  PaperValue quantity(const json& wanted) {
    for (const char* operation : {"ratio", "sum", "difference", "overhead", "least", "most"}) {
      if (wanted.contains(operation)) return combined(operation, wanted.at(operation));
    }
    json filled = wanted;
    if (wanted.contains("by")) {
      const auto name = wanted.at("by").get<std::string>();
      if (!methods_.contains(name)) refuse(fmt::format("no method '{}' ({}): add it to methods", name, origin_));
      filled = methods_.at(name);
      filled.update(wanted);
      filled.erase("by");
    }
    const std::string text = filled.dump();
    const auto known = computed_.find(text);
    return known != computed_.end() ? known->second : computed_.emplace(text, compute_(text)).first->second;
  }

  PaperValue combined(const std::string& operation, const json& parts) {
    if (!parts.is_array() || parts.empty() || (parts.size() != 2 && operation != "least" && operation != "most"))
      refuse(fmt::format("'{}' of {} ({}): give it two quantities", operation, parts.dump(), origin_));
    PaperValue result = quantity(parts.at(0));
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const PaperValue other = quantity(parts.at(i));
      result.kind = std::max(result.kind, other.kind);
      if (operation == "ratio") result.value /= other.value;
      if (operation == "overhead") result.value = result.value / other.value - 1;
      if (operation == "sum") result.value += other.value;
      if (operation == "difference") result.value -= other.value;
      if (operation == "least") result.value = std::min(result.value, other.value);
      if (operation == "most") result.value = std::max(result.value, other.value);
    }
    return result;
  }

  const std::string& origin_;
  const Compute& compute_;
  JsonFields fields_;
  json methods_ = json::object();
  std::map<std::string, Reason> reasons_;
  std::map<std::string, PaperValue> computed_;  // by the quantity's text
};

}  // namespace

bool PaperRow::agrees() const {
  if (bound == PaperBound::at_least) return ours >= published * (1 - paper_agreement);
  if (bound == PaperBound::at_most) return ours <= published * (1 + paper_agreement);
  return std::abs(relative_difference()) <= paper_agreement;
}

bool PaperRow::explained() const {
  if (std::isnan(published) || std::isnan(ours)) return !note.empty() && !claim;
  if (!claim) return agrees();
  const double difference = relative_difference();
  return claim->least <= difference && difference <= claim->most;
}

PaperTable read_paper(std::string_view text, const std::string& origin,
                      const std::function<PaperValue(const std::string&)>& compute) {
  const json file = parse_json(text, origin);
  return Reader(file, origin, compute).table();
}

}  // namespace distattn
