#include "kernels/dense/blas.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "distattn/error.hpp"

namespace distattn::kernels::dense {
namespace {

namespace fs = std::filesystem;

/// Ranks are threads themselves: BLAS threads below them would fight for the same cores, and change the order of sums.
/// OpenBLAS, MKL, BLIS and Arm's read these while they are loaded; each has a call that says it again.
void ask_for_one_thread() {
  for (const char* const variable :
       {"OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "ARMPL_NUM_THREADS"}) {
    ::setenv(variable, "1", 1);
  }
}

void say_it_again(void* library) {
  for (const char* const name : {"openblas_set_num_threads", "MKL_Set_Num_Threads"}) {
    if (void* const function = ::dlsym(library, name)) reinterpret_cast<void (*)(int)>(function)(1);
  }
  if (void* const function = ::dlsym(library, "bli_thread_set_num_threads")) {
    reinterpret_cast<void (*)(std::intptr_t)>(function)(1);
  }
}

/// OpenBLAS maps a buffer for each thread that calls it, and asks again for ever where it gets none.
void expect_room(int callers) {
  // OpenBLAS 0.3.21 maps 45 MiB, and 128 for a caller, of which a rank's thread reserves 72 for itself at the same
  // time.
  constexpr std::uint64_t library = 128u << 20, buffer = 256u << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t used = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t needed = library + buffer * static_cast<std::uint64_t>(callers);
  if (used + needed <= limit.rlim_cur) return;
  constexpr std::uint64_t mebibyte = 1u << 20;
  throw Error(ErrorKind::environment, "a training step needs " + std::to_string((used + needed) / mebibyte) +
                                          " MiB of address space with its BLAS and " + std::to_string(callers) +
                                          " ranks here (ulimit -v allows " + std::to_string(limit.rlim_cur / mebibyte) +
                                          " MiB): raise the limit, or use fewer ranks");
}

template <class Function>
Function find(void* library, const char* name) {
  const auto function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function != nullptr) return function;
  throw Error(ErrorKind::environment, blas_name() + " has no " + name +
                                          " (it is no CBLAS): put the one that distattn was built with on "
                                          "LD_LIBRARY_PATH");
}

Blas load() {
  ask_for_one_thread();
  std::string why;
  for (const std::string& file : {blas_file(), blas_name()}) {
    if (file.empty()) continue;
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const told = ::dlerror();
      why = told != nullptr ? told : file;
      continue;
    }
    say_it_again(library);
    return {find<decltype(Blas::sgemm)>(library, "cblas_sgemm"), find<decltype(Blas::dgemm)>(library, "cblas_dgemm")};
  }
  throw Error(ErrorKind::environment, "the BLAS of a training step cannot be loaded (" + why +
                                          "): install it, or put its folder on LD_LIBRARY_PATH");
}

}  // namespace

std::string blas_name() { return DISTATTN_BLAS_NAME; }

std::string blas_file() {
  const char* const set = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(std::string(set != nullptr ? set : "") + ":" DISTATTN_BLAS_FOLDER);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code missing;
    const fs::path file = fs::canonical(fs::path(folder) / DISTATTN_BLAS_NAME, missing);
    if (!folder.empty() && !missing) return file.string();
  }
  return "";
}

void load_blas(int callers) {
  expect_room(callers);
  blas();
}

const Blas& blas() {
  static const Blas loaded = load();
  return loaded;
}

}  // namespace distattn::kernels::dense
