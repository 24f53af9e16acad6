#!/bin/sh
# Builds a Kokkos from its source, once with OpenMP and once with Threads next to Serial, and judges the portable kernels
# on every space of each: conformance, equivalence, who owns Kokkos, and every schedule against float64.
#
# usage: packaging/kokkos-spaces.sh SOURCE [FOLDER]
#   SOURCE  Kokkos's source, 4.2 or later: a folder, or an archive that tar reads
#   FOLDER  where everything is built and kept for the next time (default build-kokkos)
#   SPACES="openmp threads", JOBS=n and VALIDATE="options of validate" may be set.
set -eu

usage() {
  sed -n 's/^# \{0,1\}//; 2,/^set/p' "$0" | sed '$d' >&2
  exit 2
}
[ $# -eq 1 ] || [ $# -eq 2 ] || usage
root=$(cd "$(dirname "$0")/.." && pwd)
[ -e "$1" ] || { echo "$1 is not there (Kokkos's source is needed): give a folder or an archive" >&2; exit 2; }
mkdir -p "${2:-$root/build-kokkos}"
folder=$(cd "${2:-$root/build-kokkos}" && pwd)
jobs=${JOBS:-$(nproc)}

source=$1
if [ ! -d "$source" ]; then
  rm -rf "$folder/source"
  mkdir "$folder/source"
  tar -xf "$source" -C "$folder/source" --strip-components=1
  source=$folder/source
fi
[ -f "$source/core/src/Kokkos_Core.hpp" ] || {
  echo "$1 is no source of Kokkos (core/src/Kokkos_Core.hpp is not in it): give its top folder" >&2
  exit 2
}

for space in ${SPACES:-openmp threads}; do
  upper=$(echo "$space" | tr '[:lower:]' '[:upper:]')
  cmake -S "$source" -B "$folder/kokkos-$space" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
    -DBUILD_SHARED_LIBS=ON -DKokkos_ENABLE_SERIAL=ON "-DKokkos_ENABLE_$upper=ON" \
    -DCMAKE_INSTALL_PREFIX="$folder/installed-$space" > "$folder/kokkos-$space.log"
  cmake --build "$folder/kokkos-$space" --target install -j "$jobs" >> "$folder/kokkos-$space.log"

  cmake -S "$root" -B "$folder/distattn-$space" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
    -DDISTATTN_WITH_KOKKOS=ON -DDISTATTN_WITH_CUDA=OFF -DKokkos_ROOT="$folder/installed-$space"
  cmake --build "$folder/distattn-$space" -j "$jobs" --target \
    distattn_cli test_conformance_kernels test_conformance_host_devices test_conformance_space_devices kokkos_owner \
    test_library
  suites='conformance_(kernels|host_devices|space_devices)|equivalence_(schedules|scores|serving|shared_kv)|in_place'
  ctest --test-dir "$folder/distattn-$space" --output-on-failure --no-tests=error -R "^($suites)\$|^kokkos_"
  for each in serial "$space"; do
    log=$folder/validate-$space-$each.log
    # shellcheck disable=SC2086  # several options
    "$folder/distattn-$space/bin/distattn" validate -q --backend "kokkos:$each" ${VALIDATE:-} > "$log" || {
      cat "$log" >&2
      exit 1
    }
    tail -1 "$log"
  done
done
