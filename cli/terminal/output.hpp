#pragma once
/// Standard output: JSON, aligned columns, and how numbers are written in text.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace distattn::cli {

using Json = nlohmann::ordered_json;

/// An object that begins with the version of its form.
Json versioned_object();

/// Whether this process writes to standard output: one of a run's does.
void print_here(bool here);

/// All output of a command passes here: what people read, on a terminal in lines that fit. Throws Error(environment)
/// when stdout cannot take it.
void print(std::string_view text);
/// What programs read: JSON, scripts, files. As it is everywhere.
void print_data(std::string_view data);
/// Indented, with an end of line. File names may hold any bytes: U+FFFD stands for those that are no UTF-8.
std::string json_text(const Json& json);
void print_json(const Json& json);

/// Rows of cells; numbers (cells that begin with a digit, a sign or '-') stand right, words left.
class Columns {
 public:
  explicit Columns(std::vector<std::string> heads);
  /// Cells may hold any bytes, as names do.
  void add(std::vector<std::string> cells);
  /// For a terminal that is too narrow in blocks of columns, one below the other.
  std::string text() const;
  /// The same as a table in Markdown, however wide.
  std::string markdown() const;
  /// Markdown where that fits, otherwise text().
  std::string fitting() const;

 private:
  struct Widths {
    std::vector<std::size_t> columns;
    std::vector<bool> right;
  };
  Widths widths() const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace distattn::cli
