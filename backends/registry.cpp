#include "distattn/registry.hpp"

#include "backends/registration.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace backends {

// Each built backend defines its register_<name>(); no static initialisers, so that a static library keeps them.
#define DISTATTN_BUILT(name) Registration register_##name();
#define DISTATTN_ABSENT(name, kind, why)
#include "backends.def"
#undef DISTATTN_BUILT
#undef DISTATTN_ABSENT

static std::vector<Registration> registrations() {
  std::vector<Registration> all;
#define DISTATTN_BUILT(name) all.push_back(register_##name());
#define DISTATTN_ABSENT(name, kind, why) all.push_back({{#name, BackendKind::kind, false, false, why, ""}, {}});
#include "backends.def"
#undef DISTATTN_BUILT
#undef DISTATTN_ABSENT
  return all;
}

}  // namespace backends

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> infos;
  for (const auto& registration : backends::registrations()) infos.push_back(registration.info);
  return infos;
}

std::unique_ptr<Device> make_device(std::string_view name, const DeviceOptions& options) {
  std::string known;
  for (const auto& [info, make] : backends::registrations()) {
    if (info.kind != BackendKind::device) continue;
    if (name.empty() ? info.usable : info.name == name) {
      if (!info.usable) {
        throw Error(ErrorKind::environment, "backend " + info.name + " cannot be used here (" + info.why +
                                                ") choose another with --backend; distattn info lists them");
      }
      return make(options);
    }
    known += (known.empty() ? "" : ", ") + info.name;
  }
  refuse("no backend is called " + std::string(name) + " (known: " + known + ") choose one of these");
}

}  // namespace distattn
