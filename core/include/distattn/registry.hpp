#pragma once
/// What is built, what is usable here, and why not (design: each backend registers itself, also when it is not built).

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/bootstrap.hpp"
#include "distattn/engine.hpp"
#include "distattn/error.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A provider is whose kernels a device computes tiles with, where it has a choice.
enum class BackendKind : std::uint8_t { device, transport, bootstrap, provider };

struct BackendInfo {
  std::string name = {};
  BackendKind kind = BackendKind::device;
  bool built = false;
  bool usable = false;
  std::string why = {};                     ///< why it is not usable, or what it found; never empty when not usable
  std::string version = {};                 ///< of the library behind it: built and loaded, where it has one
  std::vector<std::string> providers = {};  ///< devices only: those that GpuOptions may name
  std::string device = {};                  ///< providers only: that which computes with its kernels
  std::string argument = {};                ///< what must follow the name behind a colon, as "PATH"; empty: nothing
  /// Not usable because a variable of its own is set wrongly, and what of it `why` is: nothing else takes its place.
  std::optional<ErrorKind> misconfigured = {};
};

/// The backends of a kind, best first, whether built or not, as they are known without looking: no library is loaded
/// and no device asked, so that `usable` may be false where find_backend() says true.
std::vector<BackendInfo> known_backends(BackendKind kind);
/// Every backend that the project knows, best first within a kind. Loads the libraries of all and asks the devices.
std::vector<BackendInfo> list_backends();
/// One of them, which alone is loaded; none where no backend of that kind has the name.
std::optional<BackendInfo> find_backend(BackendKind kind, std::string_view name);
/// Those that are built, with the versions that they were built with. Nothing is loaded to say so, nor is it known
/// what is usable.
std::vector<BackendInfo> built_backends();

/// Memory for a rank's buffers: so many bytes on a boundary of 64, of the device's own space, given back when nobody
/// holds it. May throw.
using Allocator = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

/// In which order a device may add up what several of its threads contribute to one gradient.
enum class GradientOrder : std::uint8_t {
  any,   ///< the fastest: last bits may differ from run to run
  fixed  ///< the same bits in every run
};

/// Whether kernels of a step start as one CUDA graph, where there are several. It is recorded when a program's memory
/// is made, so that a repeated pass asks the driver once a step.
enum class StepGraphs : std::uint8_t { never, always };

/// What GPUs alone understand; other devices refuse whatever of it is not as usual.
struct GpuOptions {
  /// A cudaStream_t of the caller's to compute on; null: the device's own, which does not wait for the legacy default
  /// stream. Pass cudaStreamLegacy to compute on that.
  void* stream = nullptr;
  std::string provider = {};  ///< of BackendInfo::providers: whose kernels compute tiles; empty: the device's usual
  StepGraphs step_graphs = StepGraphs::never;  ///< not with a provider
  std::string variant = {};  ///< of Device::variants(), for the pass that has it; empty: those that are used

  friend bool operator==(const GpuOptions&, const GpuOptions&) = default;
};

struct DeviceOptions {
  static constexpr int most_threads = 4096;

  int threads =
      0;  ///< a rank computes with; 0: usable_cores() / local_ranks, at least 1. Who has a World asks its cores()
  int local_ranks = 1;       ///< ranks that share this process's cores
  Allocator allocator = {};  ///< of a caller that plans its memory; empty: the device's own
  /// This rank among those of its machine: which GPU it uses, where there are several. That is the CUDA runtime's
  /// current one in whatever thread has called the device, or a handle that computes on it; it is not set back.
  int local_rank = 0;
  GradientOrder gradient_order = GradientOrder::any;
  GpuOptions gpu = {};
};

/// How a device is to compute, as far as that is not as usual: "provider x, deterministic, graphs". Empty: as usual.
std::string describe(const DeviceOptions& options);

/// Throws Error(usage) for an unknown name, Error(environment) for one that is not usable, with the reason.
/// An empty name means the best usable; one that is better but misconfigured is refused, not passed over. A provider
/// that the device does not have is an unknown name.
std::unique_ptr<Device> make_device(std::string_view name, const DeviceOptions& options);

struct BootstrapOptions {
  std::string argument{};  ///< what BackendInfo::argument asks for: the path of "file"
  int ranks = 0;           ///< that must come, "file" needs to know; 0: as many as the launcher started
  double timeout_s = 60;   ///< longest time without progress of an awaited rank: above 0, also infinity
};

/// Finds the other ranks. Throws as make_device, Error(usage) for a timeout that is none or where the launcher started
/// another number of ranks, Error(timeout) or Error(peer) where they do not come.
std::unique_ptr<Bootstrap> make_bootstrap(std::string_view name, const BootstrapOptions& options);

/// A transport between the processes of `bootstrap`; a collective. Throws as make_device.
std::unique_ptr<Transport> make_transport(std::string_view name, Bootstrap& bootstrap);

}  // namespace distattn
#pragma GCC visibility pop
