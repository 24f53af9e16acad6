#!/usr/bin/env bash
# Makes a virtual environment with what the tests of the Python packages need (requirements.txt, 6 GB of disk), or with
# other REQUIREMENTS, unless it is there, and prints its interpreter, for DISTATTN_PYTHON.
# Usage: tests/python/venv.sh FOLDER [REQUIREMENTS]
set -euo pipefail
requirements=$(realpath "${2:-$(dirname "$(realpath "${BASH_SOURCE[0]}")")/requirements.txt}")
folder=$(realpath -m "$1")
made=$folder/requirements.txt  # copied last

if ! cmp -s "$requirements" "$made"; then
  rm -rf "$folder"
  python3 -m venv "$folder" >&2
  timeout 600 "$folder/bin/pip" -q --disable-pip-version-check install -r "$requirements" >&2
  cp "$requirements" "$made"
fi
echo "$folder/bin/python"
