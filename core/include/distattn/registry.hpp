#pragma once
/// Which backends are built, which are usable here, and why not. Each registers itself, even if it is not built.

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

/// A provider supplies the tile kernels of a device that offers a choice.
enum class BackendKind : std::uint8_t { device, transport, bootstrap, provider };

struct BackendInfo {
  std::string name = {};
  BackendKind kind = BackendKind::device;
  bool built = false;
  bool usable = false;
  std::string why = {};                     ///< why it is not usable (never empty then), or what it found
  std::string version = {};                 ///< version of the library behind it, if any: built and loaded
  std::vector<std::string> providers = {};  ///< devices only: providers that GpuOptions may name
  std::string device = {};                  ///< providers only: the device that computes with its kernels
  std::string argument = {};  ///< argument that must follow the name and a colon, e.g. "PATH"; empty: none
  /// Set if the backend is unusable because its own environment variable is invalid; `why` explains. Such a backend is
  /// reported as an error, never skipped in favour of another.
  std::optional<ErrorKind> misconfigured = {};
};

/// The backends of a kind, best first, whether built or not. Loads no library and queries no device, so that `usable`
/// may be false for a backend that find_backend() reports as usable.
std::vector<BackendInfo> known_backends(BackendKind kind);
/// Every known backend, best first within a kind. Loads all their libraries and queries the devices.
std::vector<BackendInfo> list_backends();
/// One backend, whose library alone is loaded; absent if no backend of that kind has the name.
std::optional<BackendInfo> find_backend(BackendKind kind, std::string_view name);
/// The backends that are built, with the versions they were built with. Loads nothing and does not say what is usable.
std::vector<BackendInfo> built_backends();

/// What is built and usable on this machine, as one JSON object with the fields of `distattn info --json` that do not
/// concern the command alone.
std::string info_json();

/// Returns `bytes` bytes in the device's memory space, 64-byte aligned, freed with the last reference. May throw.
using Allocator = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

/// The order in which several threads of a device may add to one gradient.
enum class GradientOrder : std::uint8_t {
  any,   ///< the fastest order: last bits may differ from run to run
  fixed  ///< the same bits in every run
};

/// Whether the kernels of a step with several start as one CUDA graph. It is recorded when a program's memory is
/// allocated, so that a step is one call of the driver.
enum class StepGraphs : std::uint8_t { never, always };

/// Options for GPUs only; other devices refuse any that differs from its default.
struct GpuOptions {
  /// A cudaStream_t of the caller to compute on: a pass begins after what is on it, and what the caller puts on it
  /// after a call begins after that call's pass. Null: the device's own, which does not wait for the legacy default
  /// stream. Pass cudaStreamLegacy to compute on the latter.
  void* stream = nullptr;
  std::string provider = {};                   ///< one of BackendInfo::providers; empty: the default
  StepGraphs step_graphs = StepGraphs::never;  ///< must be `never` with a provider
  std::string variant = {};  ///< name in Device::variants(), for the pass that has it; empty: the defaults

  friend bool operator==(const GpuOptions&, const GpuOptions&) = default;
};

struct DeviceOptions {
  static constexpr int most_threads = 4096;

  /// Threads of a rank; 0: usable_cores() / local_ranks, at least 1. With a World, use World::cores().
  int threads = 0;
  int local_ranks = 1;       ///< number of ranks that share this process's cores
  Allocator allocator = {};  ///< allocates the buffers; empty: the device does
  /// Index of this rank on its machine, which selects a GPU if there are several. Calls on the device, or on a handle
  /// that computes on it, make that GPU current in the calling thread and leave it so.
  int local_rank = 0;
  GradientOrder gradient_order = GradientOrder::any;
  GpuOptions gpu = {};
};

/// The options that differ from their defaults, in words: "provider x, deterministic, graphs". Empty if none does.
std::string describe(const DeviceOptions& options);

/// Throws Error(usage) for an unknown name, Error(environment) for one that is not usable, with the reason. An empty
/// name selects the best usable one; a better one that is misconfigured is an error, not skipped. A provider that the
/// device does not have counts as an unknown name.
std::unique_ptr<Device> make_device(std::string_view name, const DeviceOptions& options);

struct BootstrapOptions {
  std::string argument{};  ///< as BackendInfo::argument requires: the path for "file"
  int ranks = 0;           ///< number of ranks, which "file" needs; 0: as many as the launcher started
  double timeout_s = 60;   ///< longest time without progress of an awaited rank: above 0, also infinity
};

/// Finds the other ranks. Throws as make_device does; Error(usage) for an invalid timeout or if the launcher started
/// another number of ranks; Error(timeout) or Error(peer) if ranks do not come.
std::unique_ptr<Bootstrap> make_bootstrap(std::string_view name, const BootstrapOptions& options);

/// Makes a transport between the processes of `bootstrap`; a collective. Throws as make_device does.
std::unique_ptr<Transport> make_transport(std::string_view name, Bootstrap& bootstrap);

}  // namespace distattn
#pragma GCC visibility pop
