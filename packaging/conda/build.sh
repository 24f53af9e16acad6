#!/usr/bin/env bash
# Builds and installs everything once; the recipe's outputs share it out.
set -euo pipefail

with_cuda=OFF
[[ ${cuda_compiler_version:-None} == None ]] || with_cuda=ON

# CMAKE_ARGS is conda's own and a list.
# shellcheck disable=SC2086
cmake -S . -B build -G Ninja ${CMAKE_ARGS:-} \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib \
  -DBUILD_SHARED_LIBS=ON \
  -DDISTATTN_BUILD_CLI=ON \
  -DDISTATTN_BUILD_TESTS=OFF \
  -DDISTATTN_WITH_BLAS=ON \
  -DDISTATTN_WITH_CUDA=$with_cuda \
  -DDISTATTN_WITH_KOKKOS=ON \
  -DDISTATTN_WITH_NCCL=$with_cuda \
  -DDISTATTN_WITH_PMIX=ON \
  -DDISTATTN_WITH_UCX=ON
cmake --build build --parallel "${CPU_COUNT:-1}"
cmake --install build
