// Published figures once more, in the layout in which their papers print them: every number of a table is a row.

#include <sstream>

#include "catch.hpp"
#include "cli/step/papers.hpp"
#include "support/papers.hpp"

using namespace distattn;
using namespace distattn::step;

namespace {

std::string kilo(int tokens) { return std::to_string(tokens / 1024) + "K"; }

/// Words of lines, by line.
std::vector<std::vector<std::string>> words_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (!words.empty()) lines.push_back(words);
  }
  return lines;
}

/// Method, GPUs, tokens a GPU, tokens; for each model seconds and speedup.
constexpr const char* distflashattn_table_1 = R"(
Megatron-LM 1x8 8K 64K 6.81 1.0x 6.60 1.0x 8.37 1.0x
Megatron-LM 1x8 16K 128K 20.93 1.0x 20.53 1.0x 25.75 1.0x
Megatron-LM 1x8 32K 256K 72.75 1.0x 71.93 1.0x 90.21 1.0x
DistFlashAttn 1x8 8K 64K 5.98 1.14x 5.61 1.18x 6.08 1.38x
DistFlashAttn 1x8 16K 128K 17.26 1.21x 16.86 1.22x 17.77 1.45x
DistFlashAttn 1x8 32K 256K 58.46 1.24x 57.01 1.26x 59.96 1.50x
Megatron-LM 2x8 8K 128K 14.26 1.0x 14.21 1.0x 20.63 1.0x
Megatron-LM 2x8 16K 256K 43.44 1.0x 43.20 1.0x 62.78 1.0x
Megatron-LM 2x8 32K 512K 147.06 1.0x 146.38 1.0x 216.70 1.0x
DistFlashAttn 2x8 8K 128K 12.75 1.12x 9.74 1.46x 13.12 1.57x
DistFlashAttn 2x8 16K 256K 30.21 1.44x 28.49 1.52x 31.33 2.00x
DistFlashAttn 2x8 32K 512K 106.37 1.38x 102.34 1.43x 107.76 2.01x
)";

/// Method; first tokens' seconds for 4K, 8K, … tokens, or that memory ran out.
constexpr const char* burstattention_table_2 = R"(
burst .44 .84 1.68 3.27 6.49 16.01 49.32
v3 .73 1.36 2.68 5.67 12.25 28.73 75.52
v1 .67 1.29 2.58 5.27 11.63 27.54 71.52
ring .42 .87 2.00 5.13 OOM OOM OOM
without .46 .88 1.79 3.88 10.78 OOM OOM
)";
constexpr const char* burstattention_table_3 = R"(
burst .69 1.40 2.57 5.08 9.92 25.91 78.80
v3 1.07 2.09 4.20 8.76 19.06 45.46 119.03
)";

std::string burst_method(const std::string& word) {
  if (word == "burst") return "BurstAttention";
  if (word == "ring") return "RingAttention";
  if (word == "without") return "BurstAttention without LAO";
  return "TP (Megatron V" + word.substr(1) + ") with FlashAttention";
}

void check_first_tokens(const PaperTable& table, const std::string& where, const std::string& model, const char* text) {
  int cells = 0;
  for (const auto& words : words_of(text)) {
    REQUIRE(words.size() == 8);
    for (int i = 0; i < 7; ++i, ++cells) {
      const std::string name =
          "first token, " + model + ", 8 GPUs, " + kilo(4096 << i) + " tokens: " + burst_method(words[0]);
      const std::string& cell = words[static_cast<std::size_t>(i) + 1];
      if (cell == "OOM") {
        const PaperRow& row = row_of(table, where, name + ", memory (theirs is out of it)");
        CHECK(row.bound == PaperBound::at_least);
        CHECK(row.published == 80e9);
      } else {
        check_published(table, where, name, std::stod(cell));
      }
    }
  }
  CHECK(published_rows(table, where) == cells);
}

}  // namespace

TEST_CASE("DistFlashAttn's Table 1 is all there, with its speedups", "[step]") {
  const PaperTable table = compare_steps_with_paper("distflashattn");
  const std::string models[] = {"LLaMA-7B", "LLaMA-GQA", "LLaMA-33H"};
  for (const auto& words : words_of(distflashattn_table_1)) {
    REQUIRE(words.size() == 10);
    for (std::size_t model = 0; model < 3; ++model) {
      const std::string setting =
          models[model] + (words[1] == "1x8" ? ", 8" : ", 16") + " GPUs, " + words[2] + " tokens a GPU";
      check_published(table, "Table 1", words[0] + ", " + setting, std::stod(words[4 + 2 * model]));
      if (words[0] == "Megatron-LM") continue;
      check_published(table, "Table 1, speedup", "DistFlashAttn over Megatron-LM, " + setting,
                      std::stod(words[5 + 2 * model]));
    }
  }
  CHECK(published_rows(table, "Table 1") == 36);
  CHECK(published_rows(table, "Table 1, speedup") == 18);
}

TEST_CASE("DistFlashAttn's Tables 2 and 3 are all there", "[step]") {
  const PaperTable table = compare_steps_with_paper("distflashattn");
  const int heads[] = {16, 8, 4, 2}, data_k[] = {512, 256, 128, 64}, pipeline_k[] = {512, 256, 256, 128};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string h = std::to_string(heads[i]), rest = std::to_string(16 / heads[i]), model = ", LLaMA-" + h + "H";
    check_published(table, "Table 2", "largest sequence of DistFlashAttn" + model + ", 16 GPUs of 40 GB", 512 * 1024);
    check_published(table, "Table 2",
                    "largest sequence of " + h + " tensor-parallel × " + rest + " data-parallel" + model,
                    data_k[i] * 1024);
    check_published(table, "Table 2",
                    "largest sequence of " + h + " tensor-parallel × " + rest + " pipeline stages" + model,
                    pipeline_k[i] * 1024);
  }
  CHECK(published_rows(table, "Table 2") == 13);
  check_published(table, "Table 2", "DistFlashAttn's longer than with 2 tensor-parallel × 8 pipeline stages, LLaMA-2H",
                  4);
  check_published(table, "§4.3", "DistFlashAttn's longer than with 8 tensor-parallel × 2 data-parallel, LLaMA-8H", 2);
  check_published(table, "§4.3", "DistFlashAttn's longer than with 2 tensor-parallel × 8 data-parallel, LLaMA-2H", 8);

  const std::string one = ", LLaMA-7B, 8 GPUs", two = ", LLaMA-7B, 16 GPUs";
  check_published(table, "Table 3", "largest sequence of Ring Self-Attention" + one, 32 * 1024);
  check_published(table, "Table 3", "largest sequence of Ring Self-Attention" + two, 64 * 1024);
  check_published(table, "Table 3", "largest sequence of DistFlashAttn" + one, 256 * 1024);
  check_published(table, "Table 3", "largest sequence of DistFlashAttn" + two, 512 * 1024);
  check_published(table, "Table 3", "Ring Self-Attention" + one + ", 32K tokens", 14.10);
  check_published(table, "Table 3", "Ring Self-Attention" + two + ", 64K tokens", 30.49);
  check_published(table, "Table 3", "DistFlashAttn" + one + ", 32K tokens", 2.50);
  check_published(table, "Table 3", "DistFlashAttn" + two + ", 64K tokens", 6.85);
  check_published(table, "Table 3", "speedup over Ring Self-Attention, 8 GPUs", 5.64);
  check_published(table, "Table 3", "speedup over Ring Self-Attention, 16 GPUs", 4.45);
  CHECK(published_rows(table, "Table 3") == 10);
}

TEST_CASE("DistFlashAttn's Tables 4, 5 and 6 are all there", "[step]") {
  const PaperTable table = compare_steps_with_paper("distflashattn");
  const auto ulysses = [&](const std::string& model, const std::string& tokens, double theirs, double dfa,
                           double speedup) {
    const std::string setting = model + ", 16 GPUs, " + tokens + " tokens a GPU";
    check_published(table, "Table 4", "DeepSpeed-Ulysses, " + setting, theirs);
    check_published(table, "Table 4", "DistFlashAttn, " + setting, dfa);
    check_published(table, "Table 4", "speedup over Ulysses, " + model + ", " + tokens + " tokens a GPU", speedup);
  };
  ulysses("LLaMA-7B", "16K", 37.53, 30.21, 1.21);
  ulysses("LLaMA-7B", "32K", 134.09, 106.37, 1.26);
  ulysses("LLaMA-33H", "16K", 56.63, 31.33, 1.81);
  ulysses("LLaMA-33H", "32K", 202.89, 107.76, 1.88);
  CHECK(published_rows(table, "Table 4") == 12);

  const double layers_s[] = {.84, 1.29, 2.64, 6.93, 21.44, 76.38}, outputs_s[] = {.84, 1.36, 2.50, 5.98, 17.26, 58.46},
               speedups[] = {1.0, .94, 1.06, 1.16, 1.24, 1.31};
  for (int i = 0; i < 6; ++i) {
    const std::string setting = ", LLaMA-7B, 8 GPUs, " + kilo(1024 << i) + " tokens a GPU";
    check_published(table, "Table 5", "checkpoints at layers (Hugging Face)" + setting, layers_s[i]);
    check_published(table, "Table 5", "checkpoints at attention's output" + setting, outputs_s[i]);
    check_published(table, "Table 5, speedup", "layer over attention-output" + setting, speedups[i]);
  }
  CHECK(published_rows(table, "Table 5") == 12);
  CHECK(published_rows(table, "Table 5, speedup") == 6);

  int nodes = 0;
  for (const auto& words : words_of("31.5GB 31.4GB 28.7GB 28.7GB 26.0GB 26.0GB 24.6GB 24.6GB\n"
                                    "21.8GB 21.8GB 20.5GB 20.5GB 17.9GB 17.8GB 32.0GB 32.1GB")) {
    ++nodes;
    for (std::size_t worker = 0; worker < words.size(); ++worker) {
      check_published(table, "Table 6",
                      "Megatron-LM, LLaMA-2H, 128K tokens, 2 tensor-parallel × 8 stages: node " +
                          std::to_string(nodes) + ", worker " + std::to_string(worker + 1),
                      std::stod(words[worker]) * 1e9);
    }
  }
  CHECK(published_rows(table, "Table 6") == 16);
}

TEST_CASE("what DistFlashAttn's text says of steps is there", "[step]") {
  const PaperTable table = compare_steps_with_paper("distflashattn");
  check_published(table, "§4.3", "LLaMA-33H's speedup more than LLaMA-7B's, 8 GPUs, 32K tokens a GPU", 0.20);
  check_published(table, "§4.3", "LLaMA-33H's speedup more than LLaMA-7B's, 16 GPUs, 32K tokens a GPU", 0.45);
  check_published(table, "§1", "overlap end to end, LLaMA-7B, 16 GPUs, 512K tokens", 1.32);
  check_published(table, "§3.3", "attention forwards that are not run again, LLaMA-7B, one GPU, 64K tokens", 7);
  check_published(table, "§4.4", "sequences longer than Ring Self-Attention's, 8 GPUs", 8);
  check_published(table, "Figure 4", "attention of one layer, forward, one GPU, 64K tokens", 0.23);
  const std::string overhead = "communication overhead ", step = " overlap, training step, LLaMA-7B, 16 GPUs, ";
  check_published(table, "Figure 5 (right)", overhead + "without" + step + "128K tokens", 1.05);
  check_published(table, "Figure 5 (right)", overhead + "with" + step + "128K tokens", 0.44);
  check_published(table, "Figure 5 (right)", overhead + "with" + step + "256K tokens", 0.08);
  check_published(table, "Figure 5 (right)", overhead + "without" + step + "512K tokens", 0.33);
  check_published(table, "Figure 5 (right)", overhead + "with" + step + "512K tokens", 0.01);
}

TEST_CASE("BurstAttention's tables are all there", "[step]") {
  const PaperTable table = compare_steps_with_paper("burstattention");
  check_first_tokens(table, "Table 2", "LLaMA-7b", burstattention_table_2);
  check_first_tokens(table, "Table 3", "LLaMA-13b", burstattention_table_3);
  const std::string ppl = "perplexity of LLaMA-7b on C4: ";
  check_published(table, "Table 4", ppl + "TP", 9.901);
  check_published(table, "Table 4", ppl + "TP with FlashAttention", 9.902);
  check_published(table, "Table 4", ppl + "RingAttention", 9.904);
  check_published(table, "Table 4", ppl + "BurstAttention without LAO", 9.901);
  check_published(table, "Table 4", ppl + "BurstAttention", 9.901);
  CHECK(published_rows(table, "Table 4") == 5);
  // 4HZd, over G for tensor parallelism; H = 4096, Z = 32, d = 128, G = 8.
  const std::string layer = ", one layer of LLaMA-7b's attention, 8 GPUs";
  check_published(table, "Table 1", "parameters of BurstAttention" + layer, 4.0 * 4096 * 32 * 128);
  check_published(table, "Table 1", "parameters of tensor parallelism" + layer, 4.0 * 4096 * 32 * 128 / 8);
  // 4BZNd/G + BZN²/G + BNH/G, in two bytes each.
  const double n = 32768, znd = n * 4096;
  check_published(table, "Table 1", "activations of RingAttention" + layer + ", 32K tokens",
                  2 * (4 * znd / 8 + 32 * n * n / 8 + znd / 8));
  check_published(table, "Table 1", "activations of BurstAttention without LAO" + layer + ", 32K tokens",
                  2 * (4 * znd / 8 + 32 * n * n / 64 + znd / 8));
  CHECK(published_rows(table, "Table 1") == 7);
  check_published(table, "§1", "training speed over TP (Megatron V3), LLaMA-7b, 8 GPUs, 128K tokens", 2.0);
  check_published(table, "Abstract", "training speed over TP (Megatron V3), LLaMA-7b, 32 GPUs, 128K tokens", 1.37);
}

TEST_CASE("BurstAttention's figures have a row for every point", "[step]") {
  const PaperTable table = compare_steps_with_paper("burstattention");
  for (const std::string method :
       {"BurstAttention+ZeRO", "TP (Megatron V3) with FlashAttention", "RingAttention", "BurstAttention without LAO"}) {
    for (int tokens = 1024; tokens <= 32768; tokens *= 2) {
      const std::string setting = ", LLaMA-7b, 8 GPUs, " + kilo(tokens) + " tokens: " + method;
      CHECK(std::isnan(row_of(table, "Figure 2", "training step" + setting).published));
      CHECK(std::isnan(row_of(table, "Figure 2", "training memory" + setting).published));
    }
  }
  for (const int tokens : {32768, 65536, 131072}) {
    const std::string setting = ", LLaMA-7b, 32 GPUs, " + kilo(tokens) + " tokens: BurstAttention+ZeRO";
    CHECK(row_of(table, "Figure 3", "training step" + setting).ours > 0);
    CHECK(row_of(table, "Figure 3", "training memory" + setting).ours > 0);
  }
  for (const int each : {1, 2, 4, 8}) {
    const std::string number = std::to_string(each);
    CHECK(row_of(table, "Figure 4(a)", "first token, LLaMA-13b, 64K tokens, " + number + " GPUs: BurstAttention").ours >
          0);
    CHECK(row_of(table, "Figure 4(b)", "training throughput, LLaMA-7b, 8 GPUs, 4K tokens, batch " + number).ours > 0);
  }
}

TEST_CASE("Attention2D's figures are all there, cell by cell and over all cells", "[step][again]") {
  const PaperTable table = compare_steps_with_paper("attention2d");
  const std::pair<const char*, double> parameters[] = {
      {"760m", 760e6}, {"2.7b", 2.7e9}, {"13b", 13e9}, {"66b", 66e9}, {"175b", 175e9}};
  for (const auto& [model, count] : parameters) {
    check_published(table, "Table 3", "parameters of gpt-" + std::string(model), count);
  }
  const std::tuple<int, const char*, double> least[] = {{16, "NO", 2.4}, {16, "O", 2.3}, {64, "NO", 4}, {64, "O", 2.5}};
  for (const auto& [ranks, kind, speedup] : least) {
    const std::string over = "Attention2D-" + std::string(kind) + " over Ring Attention, ",
                      gpus = std::to_string(ranks) + " GPUs, ";
    check_published(table, "Figure 4, §4.1", over + gpus + "least of all models and lengths", speedup);
    for (const char* model : {"760m", "2.7b", "13b"}) {
      for (int tokens = 8192; tokens <= 131072; tokens *= 2) {
        const PaperRow& row = row_of(table, "Figure 4", over + "gpt-" + model + ", " + gpus + kilo(tokens) + " tokens");
        CHECK(row.published == speedup);
        CHECK(row.bound == PaperBound::at_least);
      }
    }
  }
  CHECK(published_rows(table, "Figure 4") == 60);
  check_published(table, "Abstract", "Attention2D over Ring Attention, 64 A100, most of all models and lengths", 5);
  check_published(table, "Figure 6",
                  "Attention2D over Ring Attention, 8 layers of gpt-66b, 64 GPUs, most of all lengths", 8.6);
  check_published(table, "Figure 6",
                  "Attention2D over Ring Attention, 6 layers of gpt-175b, 64 GPUs, most of all lengths", 9.4);
  CHECK(published_rows(table, "Figure 6") == 2);
  check_published(table, "Figure 5", "16 to 64 GPUs, gpt-2.7b, 128K tokens: Attention2D-NO", 1.4);
  check_published(table, "§4.2", "16 to 64 GPUs, gpt-2.7b, 128K tokens: Attention2D-NO, by theory", 2);
}
