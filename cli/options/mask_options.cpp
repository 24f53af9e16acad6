#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "cli/options/option.hpp"
#include "cli/options/problem_options.hpp"
#include "cli/options/values.hpp"
#include "cli/terminal/console.hpp"
#include "cli/tools/documents.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/tree.hpp"

namespace distattn::cli {
namespace {

/// A mask of more bands than this is refused before it is built.
constexpr std::int64_t most_blocks = 1 << 24;

std::vector<std::int64_t> parse_window(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> sides;
  for (const std::string& item : parse_list(option, text)) {
    sides.push_back(item == "-1" ? -1 : parse_size(option, item));
  }
  if (sides.size() != 2) refuse(fmt::format("{} {} (not two numbers): write it as L,R; -1 is unlimited", option, text));
  return sides;
}

std::string parse_corpus(std::string_view option, std::string_view text) {
  const auto corpora = document_corpora();
  const std::vector<std::string_view> words(corpora.begin(), corpora.end());
  return corpora[parse_word(option, text, words)];
}

constexpr const char* mask_help = "Keys a query sees; FILE lists bands (default causal)";
constexpr const char* several_masks_help =
    "Keys a query sees; FILE lists bands (default causal). Given several times, masks of layers on one layout, each as "
    "MASK*LAYERS";
/// What --mask takes; capitals stand for a number, or for a file's name.
constexpr std::string_view prefix = "prefix:", block_causal = "block-causal:", window = "window:";
OptionChoices mask_choices() {
  return {std::string("full"),
          std::string("causal"),
          begun(std::string(prefix), "K"),
          begun(std::string(block_causal), "B"),
          begun(std::string(window), "L"),
          begun(std::string(MaskOptions::tree), "FILE"),
          any_file("FILE.json")};
}

/// The number behind a mask's name.
std::int64_t number_of(std::string_view mask, std::string_view name) {
  return parse_size(fmt::format("--mask {}", name.substr(0, name.size() - 1)), mask.substr(name.size()));
}

/// The keys before and after a query that "window:L[:R]" shows.
std::pair<std::int64_t, std::int64_t> window_of(std::string_view mask) {
  const std::string_view sides = mask.substr(window.size());
  const std::size_t colon = sides.find(':');
  const auto side = [&](std::string_view text) { return text == "-1" ? -1 : parse_size("--mask window", text); };
  return {side(sides.substr(0, colon)), colon == sides.npos ? 0 : side(sides.substr(colon + 1))};
}

/// Refuses what is the name of no mask.
std::string parse_mask(std::string_view option, std::string_view text) {
  std::vector<std::string> forms;
  for (const OptionChoice& choice : mask_choices()) {
    forms.push_back(choice.form);
    for (const std::string& word : choice.words) {
      const bool goes_on = word.ends_with(':'), with_number = goes_on && word != MaskOptions::tree;
      if (word == window && text.starts_with(window)) window_of(text);
      if (with_number && word != window && text.starts_with(word)) number_of(text, word);
      if (goes_on ? text.starts_with(word) && text.size() > word.size() : text == word) return std::string(text);
    }
  }
  if (!text.ends_with(".json")) {
    refuse(fmt::format("{} {} (unknown): choose one of {}", option, text, fmt::join(forms, ", ")));
  }
  return std::string(text);
}

/// A list of bands fits any sequence, a tree its own.
Mask mask_of_file(const MaskOptions& options, std::int64_t seq_kv) {
  Mask mask = read_mask(options);
  if (!options.is_tree()) return mask;
  std::int64_t tokens = 0;
  for (const Band& band : mask.given) tokens = std::max(tokens, band.q1);
  if (tokens == seq_kv) return mask;
  refuse(fmt::format("--mask {} is a tree of {} tokens (the sequence has {} keys): give --seq {}", options.mask, tokens,
                     seq_kv, tokens));
}

Mask base_mask(const MaskOptions& options, std::int64_t seq_kv) {
  const std::string& text = options.mask;
  if (text == "full") return full_mask();
  if (text == "causal") return causal_mask();
  if (text.starts_with(prefix)) return prefix_mask(seq_kv, number_of(text, prefix));
  if (!options.file().empty()) return mask_of_file(options, seq_kv);
  if (text.starts_with(window)) {
    Mask mask = full_mask();
    std::tie(mask.left, mask.right) = window_of(text);
    mask.name = text;
    return mask;
  }
  DISTATTN_EXPECT(text.starts_with(block_causal));
  const std::int64_t size = number_of(text, block_causal);
  if (size > 0 && seq_kv / size > most_blocks) {
    refuse(fmt::format("--mask {} (more than {} blocks): choose larger ones", text, most_blocks));
  }
  return block_causal_mask(seq_kv, size);
}

/// "causal*3". The name of a tree's file may end alike: what is behind the last star is a weight there, too.
WeightedMask parse_weighted(std::string_view option, const std::string& text) {
  if (text.find(',') != text.npos) {
    refuse(fmt::format("{} {} (a list, but given several times {} is one mask each): give each by itself", option, text,
                       option));
  }
  const std::size_t star = text.rfind('*');
  WeightedMask one{parse_mask(option, not_empty(option, text.substr(0, star)))};
  if (star == text.npos) return one;
  one.weight = parse_number(fmt::format("the layers of {} {}", option, one.mask), text.substr(star + 1));
  constexpr double most_layers = 1e9;  // models have hundreds
  if (one.weight > 0 && one.weight <= most_layers) return one;
  refuse(fmt::format("{} {} (how many layers have the mask): give a positive number up to 1e9", option, text));
}

std::vector<std::int64_t> cu_seqlens(const std::string& text, const NamedIntegers& named) {
  if (!text.starts_with('@')) {
    std::vector<std::int64_t> ends;
    for (const std::string& item : parse_list("--cu-seqlens", text)) ends.push_back(parse_size("--cu-seqlens", item));
    return ends;
  }
  if (!named) refuse(fmt::format("--cu-seqlens {} (no input file holds it): list the numbers", text));
  std::vector<std::int64_t> ends = named(text.substr(1));
  if (ends.empty())
    refuse(fmt::format("--cu-seqlens {} (it has no number): give 0 and where each document ends", text));
  return ends;
}

/// The option that changes what a mask without bands of its own shows; empty: none.
std::string_view changing_option(const MaskOptions& options) {
  const bool has_window = options.window && *options.window != std::vector<std::int64_t>{-1, -1};
  return has_window                   ? "--window"
         : options.sinks > 0          ? "--global-keys"
         : options.cu_seqlens         ? "--cu-seqlens"
         : !options.documents.empty() ? "--documents"
                                      : "";
}

/// Refuses such options where the mask says by itself what each query sees.
void check_alone(const MaskOptions& options) {
  const std::string_view option = changing_option(options);
  if (option.empty()) return;
  const bool is_list = !options.is_tree() && !options.file().empty();
  refuse(fmt::format("{} with --mask {} (which says itself what each query sees): {}", option, options.mask,
                     is_list ? "write it into its bands, or leave it out" : "leave one of them out"));
}

std::string name_of(const MaskOptions& options, const Mask& mask) {
  std::string name = mask.name;
  if (options.window) name += fmt::format(" window {},{}", (*options.window)[0], (*options.window)[1]);
  if (options.sinks > 0) name += fmt::format(" global-keys {}", options.sinks);
  if (!options.documents.empty()) name += " " + options.documents;
  if (!mask.documents.empty()) name += fmt::format(" documents {}", mask.documents.size() - 1);
  return name;
}

}  // namespace

void add_mask_option(App& app, std::string& mask) {
  add_value(app, "--mask", mask, parse_mask, mask_help, one_of(mask_choices()), Group::mask);
}

void add_mask_option(App& app, std::vector<std::string>& list, std::vector<WeightedMask>& together) {
  const auto take = [&list, &together](const std::vector<std::string>& texts) {
    list.clear();
    together.clear();
    for (const std::string& text : texts) {
      if (texts.size() > 1) {
        together.push_back(parse_weighted("--mask", not_empty("--mask", text)));
        continue;
      }
      list = parse_list("--mask", not_empty("--mask", text));
      for (const std::string& mask : list) {
        if (mask.find('*') != mask.npos && !mask.starts_with(MaskOptions::tree))
          refuse(
              fmt::format("--mask {} (layers are counted where masks share a layout): give several, or leave the "
                          "number out",
                          mask));
        parse_mask("--mask", mask);
      }
    }
  };
  app.add_texts("--mask", take, several_masks_help, some_of(mask_choices()), Group::mask);
}

void add_window_options(App& app, MaskOptions& options) {
  add_value(app, "--window", options.window, parse_window, "Keys seen before and after a query; -1: all", "L,R",
            Group::mask);
  auto* const global = add_value(app, "--global-keys", options.sinks, parse_size,
                                 "First keys that stay visible outside the window", "SIZE", Group::mask);
  const auto parse_sinks = [](std::string_view option, std::string_view text) {
    const std::int64_t count = parse_size(option, text);
    note_once("--sinks is now --global-keys (sinks are what --sink-logits gives): the old name will go");
    return count;
  };
  add_value(app, "--sinks", options.sinks, parse_sinks, "The old name of --global-keys", "SIZE", rarely(Group::mask))
      ->excludes(global);
  add_value(app, "--cu-seqlens", options.cu_seqlens, as_text, "Where packed documents end: 0,11,37, or @NAME, a tensor",
            "LIST", Group::mask);
  add_value(app, "--documents", options.documents, parse_corpus,
            "Packed documents as a corpus has them, drawn with the seed", one_of(document_corpora()),
            rarely(Group::mask));
}

void add_mask_options(App& app, MaskOptions& options) {
  add_mask_option(app, options.mask);
  add_window_options(app, options);
}

Mask read_mask(const MaskOptions& options) {
  const std::string file = options.file(), text = read_file(file);
  if (!options.is_tree()) return mask_from_json(text, file);
  Mask mask = tree_mask(tree_from_json(text, file));
  mask.name = options.mask;
  return mask;
}

Mask mask_of(const MaskOptions& options, std::int64_t seq_kv, std::uint64_t seed, const NamedIntegers& named) {
  Mask mask = base_mask(options, seq_kv);
  if (mask.explicit_bands) check_alone(options);
  if (options.window) {
    if (options.mask.starts_with(window)) {
      refuse(fmt::format("--window with --mask {} (both say what a window shows): give one", options.mask));
    }
    mask.left = (*options.window)[0];
    mask.right = (*options.window)[1];
    if (mask.causal && mask.right > 0) {
      note_once(
          fmt::format("--window {},{} shows no key after a query (the mask is causal): write --window {},0, or add "
                      "--mask full",
                      mask.left, mask.right, mask.left));
    }
  }
  mask.sinks = options.sinks;
  if (mask.sinks > 0 && mask.left < 0 && (mask.causal || mask.right < 0)) {
    note_once(fmt::format("--global-keys {} changes nothing (no window hides a key): add --window L,R", mask.sinks));
  }
  if (options.cu_seqlens && !options.documents.empty()) {
    refuse("--cu-seqlens with --documents (both say where documents end): give one");
  }
  if (options.cu_seqlens) mask.documents = cu_seqlens(*options.cu_seqlens, named);
  if (!options.documents.empty()) mask.documents = draw_documents(options.documents, seq_kv, seed);
  mask.name = name_of(options, mask);
  check(mask, seq_kv);
  return mask;
}

}  // namespace distattn::cli
