/// The graphs that the provider makes, shown to the cuDNN of this machine: its engines for a Hopper GPU take them. No
/// GPU is needed, but a driver's library is, for which the CUDA toolkit's stub will do.

#include <iostream>
#include <string_view>

#include "backends/cudnn/graph.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"

namespace {

using namespace distattn;
using namespace distattn::backends::cudnn;

/// What cuDNN asks of a GPU, as an H200 answers.
constexpr std::string_view h200 =
    R"({"deviceName":"NVIDIA H200","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxCtasPerSM":32,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
    R"("pciDeviceId":0,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"totalGlobalMem":150000000000})";

/// The library with the description of the GPU; none where one is missing.
std::optional<std::pair<const Library*, Target>> here() {
  try {
    const Library& library = load_library();
    std::vector<char> text(h200.begin(), h200.end());
    text.push_back('\0');
    Descriptor properties(library, DescriptorType::device_properties);
    properties.set(Attribute::device_properties_json, AttributeType::character, text).finalize("describe a GPU");
    return std::pair(&library, Target{.properties = properties});
  } catch (const Error& error) {
    std::cout << "SKIPPED: " << error.what() << '\n';
    return std::nullopt;
  }
}

AttendShape shape_of(std::int64_t rows, std::int64_t columns, std::int64_t head_dim, std::int64_t value_dim) {
  return {.pass = Pass::forward,
          .dtype = DType::bf16,
          .batch = 2,
          .heads = 8,
          .kv_heads = 2,
          .rows = rows,
          .columns = columns,
          .q_tokens = rows + 3,
          .k_tokens = columns + 5,
          .head_dim = head_dim,
          .value_dim = value_dim,
          .left = {},
          .right = {}};
}

}  // namespace

TEST_CASE("cuDNN has kernels for every kind of piece") {
  const auto found = here();
  if (!found) return;
  const auto& [library, target] = *found;
  const auto engines = [&, library = library, target = target](const AttendShape& shape) {
    return AttendGraph(*library, shape, target).engines(target).size();
  };
  if (engines(shape_of(128, 256, 128, 128)) == 0) {
    std::cout << "SKIPPED: cuDNN finds no driver's library\n";
    return;
  }
  using Bound = std::optional<std::int64_t>;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const auto of_pass = [pass](AttendShape shape) {
      shape.pass = pass;
      return shape;
    };
    CAPTURE(name_of(pass));
    for (const auto& [left, right] : {std::pair<Bound, Bound>{{}, {}}, {{}, 0}, {{}, 5}, {{}, -1}, {7, 0}, {7, {}}}) {
      for (const DType dtype : {DType::bf16, DType::fp16}) {
        AttendShape shape = of_pass(shape_of(128, 256, 128, 128));
        shape.dtype = dtype;
        shape.left = left;
        shape.right = right;
        CAPTURE(left.value_or(-99), right.value_or(-99), name_of(dtype));
        CHECK(engines(shape) > 0);
      }
    }
    CHECK(engines(of_pass(shape_of(1, 2, 256, 256))) > 0);
    CHECK(engines(of_pass(shape_of(8191, 8191, 40, 40))) > 0);
    CHECK(engines(of_pass(shape_of(127, 77, 192, 128))) > 0);
    CHECK(engines(of_pass(shape_of(128, 128, 36, 36))) == 0);
    AttendShape of_own_keys = of_pass(shape_of(128, 256, 128, 128));
    of_own_keys.kv_heads = of_own_keys.heads;
    CHECK(engines(of_own_keys) > 0);
  }
}
