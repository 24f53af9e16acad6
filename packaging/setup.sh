#!/usr/bin/env bash
# Makes this machine ready and builds distattn: installs what is missing with apt, configures, builds.
# Usage: packaging/setup.sh [PRESET [TARGET...]]    (default: release, everything)
# Run again it only does what is still to do. CUDA and NCCL are used where they are: this installs neither.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
shift || true

packages=(
  g++ cmake ninja-build
  libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev catch2
  libtrilinos-kokkos-dev libucx-dev libpmix-dev openmpi-bin libopenblas-dev
  pkgconf python3
)
sanitized='' everything=yes
[[ $# -eq 0 ]] || everything=''
case $preset in
  asan | tsan) sanitized=yes ;;
  memory | threads) sanitized=yes everything='' ;;
esac
[[ -z $sanitized ]] || packages+=(clang lld)
# What tests alone use, a third of all that is to install: whoever builds everything can run them.
[[ -z $everything ]] || packages+=(
  libopenmpi-dev python3-numpy python3-yaml iproute2
  clang-format clang-tidy abigail-tools valgrind shellcheck doxygen
)

say() { printf -- '-- %s\n' "$*"; }

as_root() {
  if [[ $EUID -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  local package
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || printf '%s\n' "$package"
  done
}

install_missing() {
  if ! command -v apt-get >/dev/null; then
    say "this is no Debian (no apt-get): building with the packages that are here"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "every package is installed"
    return
  fi
  if [[ $EUID -ne 0 ]] && ! command -v sudo >/dev/null; then
    echo "packages are missing (installing needs root or sudo) run as root: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  say "installing with apt: ${missing[*]}"
  local log
  log=$(mktemp)
  # Stale or empty lists would make the installation fail; without a network the lists at hand may still do.
  as_root apt-get -q update </dev/null >"$log" 2>&1 || say "apt-get update failed: trying the lists at hand"
  if ! as_root apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" \
    </dev/null >>"$log" 2>&1; then
    cat "$log" >&2
    echo "installation failed (apt's messages above): install by hand: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  rm -f "$log"
}

# Where nobody looks at the output, nothing may be missing or warned of in silence.
strict=()
if [[ -n ${DISTATTN_STRICT:-} ]]; then
  strict=(-DDISTATTN_WARNINGS_AS_ERRORS=ON)
  for option in KOKKOS UCX PMIX BLAS; do strict+=("-DDISTATTN_WITH_$option=ON"); done
fi

# A first look does not wait for CPU kernels that this processor does not use, nor for CUDA kernels where no GPU can be
# used; whoever builds everything gets them.
quick=()
if [[ $# -eq 0 ]]; then
  quick=(-DDISTATTN_LEFT_OUT_CUDA=)
  [[ -n $sanitized ]] || quick+=(-DDISTATTN_CPU_KERNELS=ALL)  # sanitizers watch what runs here, as their presets say
elif [[ ! -e build/build.ninja ]]; then
  quick=(-DDISTATTN_CPU_KERNELS=NATIVE)
  if [[ ! -e /dev/nvidiactl && ! -e /dev/dxg ]]; then
    quick+=("-DDISTATTN_LEFT_OUT_CUDA=no GPU was there when distattn was built, packaging/setup.sh builds it nevertheless")
  fi
fi

configure() {
  say "configuring (preset $preset)"
  if [[ -f $build/build.ninja ]]; then
    cmake -S . -B "$build" "${strict[@]}" "${quick[@]}"
  else
    cmake --preset "$preset" "${strict[@]}" "${quick[@]}"
  fi
}

install_missing
build=build
[[ $preset == release ]] || build=build-$preset
configure
say "building into $build/"
cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}
