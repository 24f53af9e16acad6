#pragma once
/// What a terminal understands, how wide it is, and how wide text is on it.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace distattn::cli {

/// Whether the descriptor is a terminal that somebody looks at. A pseudo-terminal that a launcher gives its ranks, as
/// Open MPI does wherever its own output goes, is none.
bool is_terminal(int fd);
/// Whether the descriptor is a terminal on which a line can be written over. A log, a terminal that says it is dumb or
/// nothing, and what continuous integration shows later (CI) cannot.
bool can_overwrite(int fd);
/// The same, and nobody asked for NO_COLOR.
bool shows_colours(int fd);
/// Of a terminal: what it says, or COLUMNS if that is less; 80 if neither is known. Asked anew each time: windows
/// change.
std::size_t columns_of_terminal(int fd);

/// How long a line may be that is written there. Programs that read a pipe or a file find lines as they are.
inline constexpr std::size_t any_length = std::numeric_limits<std::size_t>::max();
std::size_t columns_of_lines(int fd);

/// Columns that a terminal shows of UTF-8 text: letters of East Asia take two, accents that are put on others none.
std::size_t columns_of(std::string_view text);
/// Its beginning, in that many columns at most; "…" stands for what is left out.
std::string cut(std::string_view text, std::size_t columns);
/// Lines of at most that many columns, at least 1, broken between words where that is possible; `indent` blanks, fewer
/// than columns, before those that go on.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);
/// The same for every line of a text; lines go on below the second part of one that begins with a short label or
/// blanks, else a little to the right.
std::string fitted(std::string_view text, std::size_t columns);

/// Names of files and tensors, and what stands in files, as every message, table and list shows them: on one line, as
/// UTF-8 (U+FFFD for what is none), with blanks for what a terminal could take for something else than text: control
/// characters, also of eight bits, and those that change the direction of writing.
std::string printable(std::string_view text);

}  // namespace distattn::cli
