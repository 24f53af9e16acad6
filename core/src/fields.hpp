#pragma once
/// Rows of results. A row is a plain struct that lists its fields once, in `void fields_of(const Row&, RowFields&)`:
/// each with its name, its unit and what it means. JSON, CSV, tables and the lists of docs/json.md are written from
/// that.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/src/format.hpp"

namespace distattn {

/// What stands in text for a value that is not known.
inline constexpr const char* unknown_text = "–";
/// A number that is not known, or does not apply: null in JSON.
inline constexpr double unknown_number = std::numeric_limits<double>::quiet_NaN();

/// What a number counts, and how people read it.
struct Unit {
  const char* name;                       ///< as docs/json.md has it; "": none
  std::string (*text)(double) = nullptr;  ///< null: digits as they are
};

namespace units {
template <char Type, int Digits>
std::string digits(double value) {
  return Type == 'e'   ? fmt::format("{:.{}e}", value, Digits)
         : Type == 'g' ? fmt::format("{:.{}g}", value, Digits)
                       : fmt::format("{:.{}f}", value, Digits);
}
template <char Type, int Digits>
std::string finite(double value) {
  return std::isfinite(value) ? digits<Type, Digits>(value) : unknown_text;
}
/// An error that is infinite is known.
inline std::string error_in_words(double value) { return std::isnan(value) ? unknown_text : digits<'e', 1>(value); }
inline std::string percent(double value) {
  return std::isfinite(value) ? fmt::format("{:.1f} %", 100 * value) : unknown_text;
}
inline std::string bytes_rate(double value) { return std::isfinite(value) ? format_bytes(value) + "/s" : unknown_text; }

inline constexpr Unit none{""}, tokens{"tokens"};
inline constexpr Unit seconds{"s", format_seconds};
inline constexpr Unit bytes{"bytes", format_bytes}, bytes_per_s{"bytes/s", bytes_rate};
inline constexpr Unit gflops{"10⁹ FLOP/s", finite<'f', 2>};
inline constexpr Unit share{"share", percent}, idle_share{"share", finite<'f', 4>}, ratio{"ratio", finite<'f', 2>};
inline constexpr Unit error{"", error_in_words};
inline constexpr Unit nats{"nats", digits<'f', 5>}, norm{"", digits<'g', 4>};  // those of a run that diverges, too
}  // namespace units

/// What a field says about itself.
struct About {
  const char* name;
  Unit unit;
  const char* meaning;
  const char* follows = nullptr;  ///< the field whose value this one has unless it was asked for another
};

/// A field of one row.
struct Field {
  About about;
  nlohmann::ordered_json json;  ///< null: not known, or does not apply
  std::string text;             ///< a cell of a table
  bool is_list = false;
  std::vector<Field> inner{};  ///< of the object, or of each of the list, that the field is; also where it is null
};

class RowFields;
template <class T>
concept IsRow = requires(const T& row, RowFields& fields) {
  fields_of(row, fields);
};

template <class T>
struct Inside {
  using Row = T;
  static constexpr bool is_list = false;
};
template <class T>
struct Inside<std::optional<T>> : Inside<T> {};
template <class T>
struct Inside<std::variant<bool, T>> : Inside<T> {};
template <class T>
struct Inside<std::vector<T>> : Inside<T> {
  static constexpr bool is_list = true;
};

/// The visitor of fields_of().
class RowFields {
 public:
  template <class T>
  void operator()(const About& about, const T& value) {
    Field& field = fields_.emplace_back(Field{about, json_of(value), text_of(about.unit, value), false, {}});
    if constexpr (IsRow<typename Inside<T>::Row>) {
      field.is_list = Inside<T>::is_list;
      field.inner = of(typename Inside<T>::Row{});
    }
  }

  template <class Row>
  static std::vector<Field> of(const Row& row) {
    RowFields fields;
    fields_of(row, fields);
    return std::move(fields.fields_);
  }

  template <class T>
  static nlohmann::ordered_json json_of(const T& value) {
    if constexpr (IsRow<T>) {
      auto object = nlohmann::ordered_json::object();
      for (Field& field : of(value)) object[field.about.name] = std::move(field.json);
      return object;
    } else if constexpr (std::is_enum_v<T>) {
      return name_of(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    } else {
      return value;
    }
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::optional<T>& value) {
    return value ? json_of(*value) : nlohmann::ordered_json(nullptr);
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::variant<bool, T>& value) {
    return std::visit([](const auto& each) { return json_of(each); }, value);
  }
  template <class T>
  static nlohmann::ordered_json json_of(const std::vector<T>& values) {
    auto list = nlohmann::ordered_json::array();
    for (const T& each : values) list.push_back(json_of(each));
    return list;
  }
  /// Names and what they stand for: an object.
  static nlohmann::ordered_json json_of(const std::vector<std::pair<std::string, std::string>>& values) {
    auto object = nlohmann::ordered_json::object();
    for (const auto& [name, value] : values) object[name] = value;
    return object;
  }

 private:
  template <class T>
  static std::string text_of(const Unit& unit, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return std::string(name_of(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (unit.text != nullptr) return unit.text(static_cast<double>(value));
      const bool known = !std::is_floating_point_v<T> || std::isfinite(static_cast<double>(value));
      return known ? fmt::format("{}", value) : unknown_text;
    } else if constexpr (std::is_convertible_v<T, std::string>) {
      return value;
    } else {
      return "";  // an object or a list: no table has it as a cell
    }
  }
  template <class T>
  static std::string text_of(const Unit& unit, const std::optional<T>& value) {
    return value ? text_of(unit, *value) : unknown_text;
  }

  std::vector<Field> fields_;
};

}  // namespace distattn
