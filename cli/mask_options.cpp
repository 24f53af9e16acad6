#include <fmt/format.h>
#include <fmt/ranges.h>

#include "distattn/documents.hpp"
#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "option.hpp"
#include "problem_options.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

/// A mask of more bands than this is refused before it is built.
constexpr std::int64_t most_blocks = 1 << 24;

std::vector<std::int64_t> parse_window(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> sides;
  for (const std::string& item : parse_list(option, text)) {
    sides.push_back(item == "-1" ? -1 : parse_size(option, item));
  }
  if (sides.size() != 2) refuse(fmt::format("{} {} (not two numbers) write it as L,R; -1 is unlimited", option, text));
  return sides;
}

std::string parse_corpus(std::string_view option, std::string_view text) {
  const auto corpora = document_corpora();
  const std::vector<std::string_view> words(corpora.begin(), corpora.end());
  return corpora[parse_word(option, text, words)];
}

Mask base_mask(const MaskOptions& options, std::int64_t seq_kv) {
  const std::string& text = options.mask;
  if (text == "full") return full_mask();
  if (text == "causal") return causal_mask();
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  if (colon != text.npos && name == "prefix") return prefix_mask(seq_kv, parse_size("--mask prefix", text.substr(7)));
  if (colon != text.npos && name == "block-causal") {
    const std::int64_t size = parse_size("--mask block-causal", text.substr(colon + 1));
    if (size > 0 && seq_kv / size > most_blocks) {
      refuse(fmt::format("--mask {} (more than {} blocks) choose larger ones", text, most_blocks));
    }
    return block_causal_mask(seq_kv, size);
  }
  if (options.is_file()) return mask_from_json(read_file(text), text);
  refuse(fmt::format("--mask {} (unknown) choose one of full, causal, prefix:K, block-causal:B, FILE.json", text));
}

std::vector<std::int64_t> cu_seqlens(const std::string& text, const NamedIntegers& named) {
  if (!text.starts_with('@')) {
    std::vector<std::int64_t> ends;
    for (const std::string& item : parse_list("--cu-seqlens", text)) ends.push_back(parse_size("--cu-seqlens", item));
    return ends;
  }
  if (!named) refuse(fmt::format("--cu-seqlens {} (no input file holds it) list the numbers", text));
  return named(text.substr(1));
}

std::string name_of(const MaskOptions& options, const Mask& mask) {
  std::string name = mask.name;
  if (options.window) name += fmt::format(" window {},{}", (*options.window)[0], (*options.window)[1]);
  if (options.sinks > 0) name += fmt::format(" sinks {}", options.sinks);
  if (!options.documents.empty()) name += " " + options.documents;
  if (!mask.documents.empty()) name += fmt::format(" documents {}", mask.documents.size() - 1);
  return name;
}

}  // namespace

void add_mask_options(App& app, MaskOptions& options) {
  add_value(app, "--mask", options.mask, as_text, "Which keys a query sees; a file lists bands (default causal)",
            "full|causal|prefix:K|block-causal:B|FILE.json");
  add_value(app, "--window", options.window, parse_window, "Keys seen before and after a query; -1: all", "L,R");
  add_value(app, "--sinks", options.sinks, parse_size, "First keys that stay visible outside the window", "SIZE");
  add_value(app, "--cu-seqlens", options.cu_seqlens, as_text,
            "Where packed documents end: 0,11,12,37, or @NAME of the input file", "LIST");
  add_value(app, "--documents", options.documents, parse_corpus,
            "Packed documents as a corpus has them, drawn with the seed", one_of(document_corpora()));
}

Mask mask_of(const MaskOptions& options, std::int64_t seq_kv, std::uint64_t seed, const NamedIntegers& named) {
  Mask mask = base_mask(options, seq_kv);
  if (options.window) {
    mask.left = (*options.window)[0];
    mask.right = (*options.window)[1];
  }
  mask.sinks = options.sinks;
  if (options.cu_seqlens && !options.documents.empty()) {
    refuse("--cu-seqlens with --documents (both say where documents end) give one");
  }
  if (options.cu_seqlens) mask.documents = cu_seqlens(*options.cu_seqlens, named);
  if (!options.documents.empty()) mask.documents = draw_documents(options.documents, seq_kv, seed);
  mask.name = name_of(options, mask);
  check(mask, seq_kv);
  return mask;
}

}  // namespace distattn::cli
