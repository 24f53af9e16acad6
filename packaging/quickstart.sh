#!/usr/bin/env bash
# From a fresh clone to a checked result: installs what is missing, builds, shows a schedule, and computes
# an attention over real activations on four ranks, compared with a float64 oracle, and draws when what was computed and
# sent: as predicted, and as measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packaging/setup.sh release distattn_cli

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

activations=tests/data/minilm-layer2.safetensors
documents="0,512,806"
run build/bin/distattn show --schedule zigzag-ring --ranks 4 --seq 806 --heads 12 --head-dim 32 \
  --mask full --cu-seqlens "$documents"
run build/bin/distattn run --schedule zigzag-ring --ranks 4 --tensors "$activations" \
  --mask full --cu-seqlens "$documents" --check --svg build/timeline.svg
