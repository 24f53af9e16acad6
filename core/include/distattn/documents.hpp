#pragma once
/// Packed documents as corpora have them: cumulative lengths drawn from published histograms.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace distattn {

/// The corpora that documents can be drawn from: "pile", "prolong64k", "prolong512k".
std::vector<std::string> document_corpora();

/// cu_seqlens 0, …, tokens of documents drawn one after another; the last is cut where the sequence ends. The same on
/// every platform for the same (corpus, tokens, seed), and a longer sequence begins as a shorter one does.
/// Lengths in a histogram's bin fall off as 1/length² (tails of text are steeper than flat); those of the bin from 0
/// are uniform from 1 on. Throws Error(usage) for a corpus that is not there or tokens < 1.
/// Source: the histograms published with LongCA-bench (ICLR 2026).
std::vector<std::int64_t> draw_documents(std::string_view corpus, std::int64_t tokens, std::uint64_t seed);

}  // namespace distattn
#pragma GCC visibility pop
