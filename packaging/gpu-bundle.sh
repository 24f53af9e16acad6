#!/usr/bin/env bash
# Gathers what packaging/gpu-check.sh runs, to be carried to a machine that has a GPU and little else.
# Usage: packaging/gpu-bundle.sh [BUNDLE [BUILD]]
#   BUNDLE  the folder to make, with bin and lib in it (default: build-gpu); one that exists is not replaced
#   BUILD   an existing build to take, with CUDA and the tests; without one a small one is made in BUNDLE-objects: for
#           Hopper alone, and without the optional packages that a single machine with GPUs does not need (Kokkos, BLAS,
#           UCX, PMIx)
# Carry BUNDLE and packaging, and run there: DISTATTN_BUILD=BUNDLE packaging/gpu-check.sh STEP
# That machine brings a driver, and glibc and libstdc++ no older than those here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bundle=$(realpath -m "${1:-build-gpu}")
build=${2:-}
tests=(test_gpu_primitives test_gpu_elementwise test_gpu_attention test_gpu_hopper_primitives)
system_libraries='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so'

if [[ -e $bundle ]]; then
  echo "gpu-bundle: $bundle is there already (it would be replaced) remove it, or name another folder" >&2
  exit 2
fi

make_build() {
  local option options=()
  for option in KOKKOS BLAS UCX PMIX; do options+=("-DDISTATTN_WITH_$option=OFF"); done
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DDISTATTN_WITH_CUDA=ON \
    -DDISTATTN_CUDA_ARCHITECTURES=90a-real "${options[@]}"
  cmake --build "$build" --parallel "$(nproc)" --target distattn_cli "${tests[@]}"
}

# Copies the libraries that a program loads and the system does not bring.
take_libraries() {
  local name path
  while read -r name path; do
    [[ $name =~ $system_libraries || -e $bundle/lib/$name ]] || strip -o "$bundle/lib/$name" "$path"
  done < <(LD_LIBRARY_PATH=$build/lib ldd "$1" | awk '$2 == "=>" { print $1, $3 }')
}

if [[ -z $build ]]; then
  build=$bundle-objects
  make_build
fi
if [[ ! -x $build/bin/distattn ]]; then
  echo "gpu-bundle: $build/bin has no distattn (it is no build, or was not built) build it first" >&2
  exit 2
fi
[[ ! -f $build/tests/gpu/CTestTestfile.cmake ]] ||
  grep -q "${tests[-1]}" "$build/tests/gpu/CTestTestfile.cmake" || unset 'tests[-1]' # Hopper is not compiled for
for test in "${tests[@]}"; do
  if [[ ! -x $build/bin/$test ]]; then
    echo "gpu-bundle: $build/bin has no $test (built without CUDA, without the tests, or not yet) build the target $test" >&2
    exit 2
  fi
done
trap 'rm -rf "$bundle"' EXIT # half a bundle is none
mkdir -p "$bundle"/{bin,lib}
for program in distattn "${tests[@]}"; do
  strip -o "$bundle/bin/$program" "$build/bin/$program"
  take_libraries "$build/bin/$program"
done
trap - EXIT
printf -- '-- %s: %s MiB\n' "$bundle" "$(du -sm "$bundle" | cut -f1)"
