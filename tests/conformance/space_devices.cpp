/// The device of Kokkos's spaces that have memory of their own, on spaces of the host.

#include "backends/kokkos/spaces/device.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/kokkos/host_as_device.hpp"

namespace distattn::test {
namespace {

using kernels::portable::SpaceDevice;
using kernels::portable::SpaceQueue;

/// The same space with tiles as large as a device takes whose fast memory holds no small ones.
class LargeTiles final : public SpaceDevice {
 public:
  explicit LargeTiles(SpaceDevice& space) : space_(space) {}

  std::string name() const override { return space_.name() + ", large tiles"; }
  MemorySpace space() const override { return space_.space(); }
  std::string why_not() const override { return space_.why_not(); }
  void begin(int local_rank, int threads) override { space_.begin(local_rank, threads); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes, bool on_host) override {
    return space_.allocate(bytes, on_host);
  }
  std::unique_ptr<SpaceQueue> make_queue(int threads, const int* stop) override {
    return space_.make_queue(threads, stop);
  }
  std::size_t fast_bytes() const override { return 0; }

 private:
  SpaceDevice& space_;
};

DeviceKind kind_of(SpaceDevice& space, DType dtype) {
  return {space.name(), dtype, [&space](const DeviceOptions& options) {
            DeviceOptions with_threads = options;
            with_threads.threads = 2;
            return backends::make_space_device(space, with_threads);
          }};
}

}  // namespace

const std::vector<DeviceKind>& device_world() {
  static const std::vector<DeviceKind> kinds = [] {
    std::vector<DeviceKind> all;
    for (SpaceDevice* const space : {DISTATTN_HOSTS_AS_DEVICES}) {
      static std::vector<std::unique_ptr<LargeTiles>> with_large_tiles;
      with_large_tiles.push_back(std::make_unique<LargeTiles>(*space));
      all.push_back(kind_of(*space, DType::fp32));
      all.push_back(kind_of(*with_large_tiles.back(), DType::bf16));
    }
    return all;
  }();
  return kinds;
}

}  // namespace distattn::test
