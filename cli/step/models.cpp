#include "cli/step/models.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "cli/options/values.hpp"
#include "distattn/error.hpp"

namespace distattn::step {
namespace {

constexpr std::string_view touvron = "Touvron et al. 2023 (arXiv 2302.13971), table 2";
constexpr std::string_view fewer_heads =
    "DistFlashAttn §4: heads times layers stay as in llama-7b, hidden = 128 · heads, ffn stays";
// GPT-3's two products of 4·hidden are as much work as SwiGLU's three of 8·hidden/3; its vocabulary is GPT-2's, padded.
constexpr std::string_view gpt = "Attention2D table 3; ffn 8/3 · hidden for GPT-3's ungated 4 · hidden";

constexpr NamedModel models[] = {
    {"llama-7b", {32, 4096, 11008, 32000, 32, 32}, touvron},
    {"llama-7b-33h", {32, 4224, 11008, 32000, 33, 33}, "DistFlashAttn §4: llama-7b with 33 heads of 128"},
    {"llama-7b-gqa", {32, 4096, 11008, 32000, 32, 8}, "DistFlashAttn §4: llama-7b with 8 key heads"},
    {"llama-16h", {64, 2048, 11008, 32000, 16, 16}, fewer_heads},
    {"llama-8h", {128, 1024, 11008, 32000, 8, 8}, fewer_heads},
    {"llama-4h", {256, 512, 11008, 32000, 4, 4}, fewer_heads},
    {"llama-2h", {512, 256, 11008, 32000, 2, 2}, fewer_heads},
    {"llama-13b", {40, 5120, 13824, 32000, 40, 40}, touvron},
    {"llama-3-8b", {32, 4096, 14336, 128256, 32, 8}, "Grattafiori et al. 2024 (arXiv 2407.21783), table 3"},
    {"gpt-760m", {24, 1536, 4096, 51200, 16, 16}, gpt},
    {"gpt-2.7b", {32, 2560, 6827, 51200, 32, 32}, gpt},
    {"gpt-13b", {40, 5120, 13653, 51200, 40, 40}, gpt},
    {"gpt-66b", {64, 9216, 24576, 51200, 72, 72}, gpt},
    {"gpt-175b", {96, 12288, 32768, 51200, 96, 96}, gpt},
};

/// "hidden=256": a word and the number behind it.
std::pair<std::string, std::int64_t> read_field(const std::string& field) {
  const std::size_t equals = field.find('=');
  if (equals == field.npos) refuse("model field '" + field + "' (no number): write a word, '=' and a size: layers=4");
  const std::string name = field.substr(0, equals), words = "model field " + name;
  const std::int64_t value = cli::parse_size(words, field.substr(equals + 1));
  return {name, cli::within(words, value, 1, std::numeric_limits<int>::max())};
}

ModelShape read_model(std::string_view text) {
  constexpr std::array<std::string_view, 6> names = {"layers", "hidden", "heads", "kv-heads", "ffn", "vocab"};
  std::map<std::string, std::int64_t> fields;
  for (const std::string& field : cli::parse_list("model", text)) {
    const auto [name, value] = read_field(field);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      refuse("model field '" + name +
             "' is unknown (no size of a model): choose layers, hidden, heads, kv-heads, ffn or vocab");
    }
    if (!fields.emplace(name, value).second) {
      refuse("model field '" + name + "' is given twice (a model has one): leave one out");
    }
  }
  ModelShape shape;
  shape.layers = static_cast<int>(fields["layers"]);
  shape.hidden = fields["hidden"];
  shape.heads = static_cast<int>(fields["heads"]);
  shape.kv_heads = fields["kv-heads"] > 0 ? static_cast<int>(fields["kv-heads"]) : shape.heads;
  shape.ffn = fields["ffn"] > 0 ? fields["ffn"] : usual_ffn(shape.hidden);
  if (fields["vocab"] > 0) shape.vocab = fields["vocab"];
  check(shape);
  return shape;
}

}  // namespace

std::span<const NamedModel> built_in_models() { return models; }

ModelShape find_model(std::string_view name) {
  const auto found = std::find_if(std::begin(models), std::end(models), [&](const auto& m) { return m.name == name; });
  if (found != std::end(models)) return found->shape;
  if (name.find('=') != std::string_view::npos) return read_model(name);
  std::string known;
  for (const NamedModel& model : models) known += (known.empty() ? "" : ", ") + std::string(model.name);
  refuse("model '" + std::string(name) + "' is not built in (known: " + known +
         "): choose one of these, or spell it out: layers=4,hidden=256,heads=4");
}

}  // namespace distattn::step
