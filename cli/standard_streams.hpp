#pragma once
/// The three streams that a process is started with, and the signals that it is to ignore.

namespace distattn::cli {

/// Done before any library is set up. A stream that the caller closed stays one that cannot be used: its number would
/// otherwise be that of the next file, into which output would go. Standard output is moved to results_descriptor(),
/// and what libraries write to theirs goes to standard error. A reader that has gone, and the limit of file sizes, make
/// writing an error instead of ending the process, whose unfinished files would stay.
void hold_standard_streams();

/// Where results go: standard output as the caller gave it.
int results_descriptor();

/// Whether the caller asked for that, as nohup does, whatever libraries made of it since.
bool ignored_by_caller(int signal);

}  // namespace distattn::cli
