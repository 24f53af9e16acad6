#pragma once
/// Packed documents as corpora have them: cumulative lengths drawn from published histograms.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distattn {

/// The corpora that documents can be drawn from: "pile", "prolong64k", "prolong512k".
std::vector<std::string> document_corpora();

/// Draws documents one after another and returns their cu_seqlens 0, …, tokens; the last document is cut at the end of
/// the sequence. The result depends on (corpus, tokens, seed) alone, on every platform, and a longer sequence begins
/// like a shorter one. Within a bin of the histogram, lengths are distributed as 1/length², because the tail of text
/// lengths is not flat; in the bin that starts at 0 they are uniform from 1 on. Throws Error(usage) for an unknown
/// corpus or tokens < 1. Source: the histograms published with LongCA-bench (ICLR 2026).
std::vector<std::int64_t> draw_documents(std::string_view corpus, std::int64_t tokens, std::uint64_t seed);

}  // namespace distattn
