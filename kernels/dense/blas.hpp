#pragma once
/// The BLAS behind the matrix products: loaded when a training step begins, not with the program, because some start a
/// thread for every processor as soon as they are loaded.

#include <string>

#include <cblas.h>

namespace distattn::kernels::dense {

/// The library that was found when this was built, by the name that the system's loader looks for.
std::string blas_name();
/// The file that would be loaded here, links followed; empty: the loader knows, or nobody.
std::string blas_file();

/// Loads it, to be called by up to `callers` threads at a time, each of which computes alone. Before other threads read
/// the environment. Throws Error(environment) where it cannot be had, or would not get the memory that it needs:
/// without that OpenBLAS waits for ever.
void load_blas(int callers);

/// Its functions. Loads it for one caller unless it is there.
struct Blas {
  decltype(&cblas_sgemm) sgemm;
  decltype(&cblas_dgemm) dgemm;
};
const Blas& blas();

}  // namespace distattn::kernels::dense
