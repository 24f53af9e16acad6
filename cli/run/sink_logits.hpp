#pragma once
/// Sink logits of a command: read or drawn for all heads.

#include <string>

#include "cli/options/problem_options.hpp"
#include "cli/run/inputs.hpp"

namespace distattn::cli {

class App;

/// --sink-logits: FILE.npy, @NAME or random.
void add_sink_logits_option(App& app, std::string& text);

/// Gives the inputs the logits that the option's `text` says; nothing if it is empty. Without `named`, @NAME is
/// refused. Throws Error(usage) unless there is a finite number for each head, also as sums of `dtype` hold it.
void bring_sink_logits(Inputs& inputs, const std::string& text, DType dtype, std::uint64_t seed,
                       const NamedNumbers& named = {});

/// The same refusals, where nothing is computed with them.
void check_sink_logits(const std::string& text, const Problem& problem);

}  // namespace distattn::cli
