#pragma once
/// The three streams that a process is started with, and the signals that it is to ignore.

namespace distattn::cli {

/// To be called before any library is set up. A stream that the caller closed stays unusable: otherwise the next file
/// opened would get its descriptor, and output would be written into that file. Standard output is moved to
/// results_descriptor(), so that what libraries write to it goes to standard error. A closed pipe, or the limit of file
/// sizes, makes writing fail instead of ending the process, whose unfinished files would stay.
void hold_standard_streams();

/// Where results go: standard output as the caller gave it.
int results_descriptor();

/// Whether the caller asked for that, as nohup does, whatever libraries made of it since.
bool ignored_by_caller(int signal);

}  // namespace distattn::cli
