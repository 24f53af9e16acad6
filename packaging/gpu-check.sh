#!/usr/bin/env bash
# Checks distattn on a machine with an NVIDIA GPU: needs no network, and ends every step within ten minutes.
# Usage: packaging/gpu-check.sh [STEP...]    (default: all of them, in this order)
#   tests      primitives and kernels: against the PTX ISA, and against float64 under all masks, types and head_dims
#   validate   every schedule on 1 to 8 ranks that share the GPU, against float64
#   types      both passes in bf16, fp16 and fp32 at every head_dim that has kernels, likewise
#   kernels    our attention kernels and cuDNN's, on the shapes that others publish
#   variants   Hopper's usual kernels beside others that might take their place, compared with float64 before each is timed
#   bench      schedules on ranks that share the GPU; times include that of bringing inputs there
#   processes  ranks with a GPU each, over NCCL, UCX and both; needs two GPUs and mpirun
#   sanitize   kernels under compute-sanitizer, where it is installed
# Takes the build in $DISTATTN_BUILD (default: build), which may have been made elsewhere, or makes it if there is none.
# A build for Hopper alone is small: cmake -S . -B build -DDISTATTN_CUDA_ARCHITECTURES=90a-real.
# Writes STEP.json and STEP.log into $DISTATTN_BUILD/gpu-check, and what all steps so far found into report.json there.
# Exits 0 when all is well, 1 when a step failed, 3 where no GPU can be used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=$(realpath -m "${DISTATTN_BUILD:-build}")
reports=$build/gpu-check
distattn=$build/bin/distattn
step_seconds=590
all_steps=(tests validate types kernels variants bench processes sanitize)
# A build that was carried here finds its library although the folder has another name now.
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

say() { printf -- '-- %s\n' "$*"; }

# A step ends early with the reason why it cannot run here.
skip() {
  say "skipped: $*"
  printf '%s' "$*" >"$reports/$step.skipped"
  exit 0
}

# Standard input as one JSON string.
text() { printf '"%s"' "$(tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/ *$//')"; }

# Runs a command of distattn that prints JSON, and keeps what it prints among the step's results.
measure() {
  say "distattn $*"
  local status=0
  "$distattn" "$@" --json >"$reports/output.json" || status=$?
  if [[ -s $reports/output.json ]]; then
    [[ ! -s $reports/$step.results ]] || printf ',\n' >>"$reports/$step.results"
    cat "$reports/output.json" >>"$reports/$step.results"
  fi
  return "$status"
}

step_tests() {
  local test tests=(primitives elementwise attention)
  [[ ! -x $build/bin/test_gpu_hopper_primitives ]] || tests+=(hopper_primitives)
  for test in "${tests[@]}"; do
    say "test_gpu_$test"
    "$build/bin/test_gpu_$test"
  done
  say "test_gpu_attention, every mask with every padding"
  "$build/bin/test_gpu_attention" "[.long]"
}

step_validate() { measure validate --backend cuda; }

step_types() {
  local dtype head_dim
  for dtype in bf16 fp16 fp32; do
    for head_dim in 32 64 96 128 192 256; do
      measure validate --backend cuda --dtype "$dtype" --head-dim "$head_dim" --seq 517 --heads 8 --kv-heads 2 \
        --mask causal,full --window 200,-1 --ranks 1,2,3,8 --schedule ring,zigzag-ring,striped-ring,balanced
    done
  done
}

step_kernels() {
  local provider providers=(own) heads query key head_dim
  if "$distattn" bench --backend cuda --provider cudnn --kernel attend --dtype bf16 --seq 64 -n 1 >/dev/null; then
    providers+=(cudnn)
    measure bench --backend cuda --provider cudnn --check --dtype bf16 --heads 8 --kv-heads 2 --head-dim 128 \
      --seq 517 --mask causal --schedule ring,zigzag-ring,striped-ring --ranks 1,2,3,4 -n 1
  fi
  for provider in "${providers[@]}"; do
    # query heads, key heads and head_dim, as published for H100 and H200
    for heads in "64 8 128" "64 8 64" "16 16 256"; do
      read -r query key head_dim <<<"$heads"
      measure bench --backend cuda --provider "$provider" --kernel attend --dtype bf16 --heads "$query" \
        --kv-heads "$key" --head-dim "$head_dim" --seq 2048,4096,8192,16384 -n 3
    done
  done
  measure bench --backend cuda --deterministic --kernel attend --dtype bf16 --heads 64 --kv-heads 8 --head-dim 128 \
    --seq 2048,4096,8192,16384 -n 3
}

step_variants() {
  local order head_dim
  for order in "" --deterministic; do
    for head_dim in 64 128 256; do
      # shellcheck disable=SC2086 # no option where it is empty
      measure bench --backend cuda $order --kernel attend-variants --dtype bf16 --heads 16 --kv-heads 2 \
        --head-dim "$head_dim" --seq 8192 -n 2
    done
  done
}

step_bench() {
  local mask
  for mask in full causal; do
    measure bench --backend cuda --dtype bf16 --heads 32 --kv-heads 8 --head-dim 128 --seq 16384 --mask "$mask" \
      --backward --schedule ring,zigzag-ring,balanced --ranks 1,4 -n 5
  done
}

step_processes() {
  local gpus transport
  gpus=$(nvidia-smi --list-gpus | wc -l)
  [[ $gpus -ge 2 ]] || skip "one GPU is here, and NCCL needs one for each rank"
  command -v mpirun >/dev/null || skip "mpirun is not installed"
  for transport in nccl ucx nccl+ucx; do
    say "validate over $transport on $gpus GPUs"
    mpirun --allow-run-as-root --bind-to none -n "$gpus" "$distattn" validate --backend cuda --transport "$transport"
  done
}

step_sanitize() {
  command -v compute-sanitizer >/dev/null || skip "compute-sanitizer is not installed"
  local tool test tests=(primitives)
  [[ ! -x $build/bin/test_gpu_hopper_primitives ]] || tests+=(hopper_primitives)
  for tool in memcheck racecheck synccheck; do
    say "compute-sanitizer --tool $tool"
    for test in "${tests[@]}"; do
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/bin/test_gpu_$test"
    done
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/bin/test_gpu_attention" "every padding*"
  done
}

# One step with its limit, as STEP.json: outcome, seconds and results.
run_step() {
  step=$1
  rm -f "$reports/$step".*
  say "step $step"
  local outcome=passed begin=$SECONDS status=0
  timeout "$step_seconds" packaging/gpu-check.sh --only "$step" 2>&1 | tee "$reports/$step.log" || status=$?
  [[ $status -eq 0 ]] || outcome=failed
  [[ $status -ne 124 ]] || say "step $step needs more than $step_seconds s: ended" | tee -a "$reports/$step.log"
  [[ ! -f $reports/$step.skipped ]] || outcome=skipped
  {
    printf '{"step": "%s", "outcome": "%s", "seconds": %d' "$step" "$outcome" "$((SECONDS - begin))"
    [[ $outcome != skipped ]] || printf ', "why": %s' "$(text <"$reports/$step.skipped")"
    [[ $outcome != failed ]] || printf ', "why": %s' "$(tail -n 5 "$reports/$step.log" | text)"
    printf ', "results": [\n'
    [[ ! -f $reports/$step.results ]] || cat "$reports/$step.results"
    printf ']}\n'
  } >"$reports/$step.json"
  rm -f "$reports/$step".{results,skipped} "$reports/output.json"
  say "step $step $outcome"
  [[ $outcome != failed ]]
}

# report.json: the machine, the versions, and every step that has been run so far.
write_report() {
  local each separator=
  {
    printf '{"date": "%s",\n"gpus": %s,\n"kernel": %s,\n"distattn": ' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
      "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader |
        text)" "$(uname -sr | text)"
    "$distattn" info --json
    printf ',\n"steps": ['
    for each in "${all_steps[@]}"; do
      [[ -f $reports/$each.json ]] || continue
      printf '%s\n' "$separator"
      cat "$reports/$each.json"
      separator=,
    done
    printf ']}\n'
  } >"$reports/report.json"
}

make_build() {
  say "no build in $build: making one"
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DDISTATTN_WITH_CUDA=ON
  cmake --build "$build" --parallel "$(nproc)"
}

# --only STEP is how a step runs itself under its limit.
if [[ ${1:-} == --only ]]; then
  step=$2
  "step_$step"
  exit
fi

[[ $# -gt 0 ]] || set -- "${all_steps[@]}"
steps=("$@")
for step in "${steps[@]}"; do
  if [[ " ${all_steps[*]} " != *" $step "* ]]; then
    echo "gpu-check: no step is called $step (there are ${all_steps[*]}) choose among these" >&2
    exit 2
  fi
done
[[ -x $distattn ]] || make_build
if ! why=$("$distattn" validate --backend cuda --schedule ring --ranks 1 --seq 8 --heads 1 --head-dim 32 2>&1); then
  echo "gpu-check: nothing was checked: $why" >&2
  exit 3
fi

mkdir -p "$reports"
failed=()
for step in "${steps[@]}"; do
  run_step "$step" || failed+=("$step")
  write_report
done
if [[ ${#failed[@]} -gt 0 ]]; then
  say "failed: ${failed[*]}; see $reports/report.json"
  exit 1
fi
say "all is well; see $reports/report.json"
