#pragma once
/// The three streams that a process is started with.

namespace distattn::cli {

/// To be called before a file is opened. A stream that the caller closed stays one that cannot be used: its number
/// would else be that of the next file, into which output would go. And a reader that has gone makes writing an error
/// instead of ending the process, whose unfinished files would stay.
void hold_standard_streams();

}  // namespace distattn::cli
