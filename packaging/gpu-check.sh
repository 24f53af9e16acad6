#!/usr/bin/env bash
# Checks distattn on a machine with an NVIDIA GPU: needs no network, and ends every step within nine minutes. Where a
# command may not take longer than ten, call one step a command.
# Usage: packaging/gpu-check.sh [STEP...]    (default: all of them, in this order)
#   tests      primitives and kernels: against the PTX ISA, and against float64 under all masks, types and head_dims
#   validate   every schedule on 1 to 8 ranks that share the GPU, against float64
#   types      both passes in bf16, fp16 and fp32 at every head_dim that has kernels, likewise
#   kernels    our attention kernels and cuDNN's, on the shapes that others publish; what cuDNN's gradients take
#              includes reading and writing their rows twice more, as fp32: 1 to 4 % with heads of 128
#   variants   Hopper's kernels for the same tiles, each compared with float64 and then timed beside the others:
#              packaging/record-kernels.py writes the table of choices from it
#   bench      schedules on ranks that share the GPU, their steps started as CUDA graphs and without
#   processes  ranks with a GPU each, over NCCL, UCX and both; needs two GPUs and mpirun
#   memcheck   kernels under compute-sanitizer, where it is installed: memory
#   racecheck  likewise: races in shared memory, and barriers
# Takes the build in $DISTATTN_BUILD (default: build), which may have been made elsewhere, or makes it if there is none.
# packaging/gpu-bundle.sh makes a small one for Hopper alone that a machine with bare system libraries can run.
# Writes STEP.json and STEP.log into $DISTATTN_BUILD/gpu-check, and what all steps so far found into report.json there.
# Exits 0 when all is well, 1 when a step failed, 3 where no GPU can be used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=$(realpath -m "${DISTATTN_BUILD:-build}")
reports=$build/gpu-check
distattn=$build/bin/distattn
step_seconds=520
command_seconds=$step_seconds # less where a step has several: one that hangs leaves the others their time
all_steps=(tests validate types kernels variants bench processes memcheck racecheck)
failures=()
# A build that was carried here finds its library although the folder has another name now.
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# cuDNN and NCCL may be pip's: those folders no loader knows.
if command -v python3 >/dev/null; then
  wheels=$(python3 -c 'import glob, sys
print(":".join(sorted(folder for path in sys.path if path for folder in glob.glob(path + "/nvidia/*/lib"))))' || true)
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH${wheels:+:$wheels}
fi

say() { printf -- '-- %s\n' "$*"; }

# A step ends early with the reason why it cannot run here.
skip() {
  say "skipped: $*"
  printf '%s' "$*" >"$reports/$step.skipped"
  exit 0
}

# Standard input as one JSON string.
text() { printf '"%s"' "$(tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/ *$//')"; }

# Runs what may fail without ending its step, which fails at its end.
attempt() {
  local status=0
  "$@" 2>&1 | tee "$reports/attempt.log" || status=$?
  [[ $status -ne 124 && $status -ne 137 ]] || printf 'it took too long and was ended\n' | tee -a "$reports/attempt.log"
  [[ $status -eq 0 ]] || failures+=("$*: exit $status: $(tail -n 2 "$reports/attempt.log" | tr '\n' ' ')")
}

# Runs a program of the step for as long as it may take, and no longer than the step.
limited() {
  local left=$((step_seconds - SECONDS - 15))
  [[ $left -gt 0 ]] || return 124
  timeout -k 10 $((left < command_seconds ? left : command_seconds)) "$@"
}

# Runs a test program, which names each case when it has ended: of one that hangs the last is the one before.
run_test() { limited stdbuf -oL "$build/bin/test_gpu_$1" --durations yes "${@:2}"; }

# Whether this distattn was built with a backend of that name.
is_built() {
  awk -v name="\"$1\"," '
    $1 == "\"name\":" { its = $2 == name }
    its && $1 == "\"built\":" { built = $2 == "true," }
    END { exit !built }' "$reports/info.json"
}

# Why this machine does not have a device or provider of that name; nothing where it has.
why_not() {
  awk -v name="\"$1\"," '
    $1 == "\"name\":" { its = $2 == name }
    its { seen = 1 }
    its && $1 == "\"usable\":" { usable = $2 == "true," }
    its && $1 == "\"why\":" && !usable { sub(/^ *"why": "/, ""); sub(/",$/, ""); print }
    END { if (!seen) print "this distattn does not know it" }' "$reports/info.json"
}

# Keeps standard input, a JSON value, among the step's results; nothing where it is cut off.
keep() {
  local result
  result=$(cat)
  [[ $result == ["[{"]*["]}"] ]] || return 0
  [[ ! -s $reports/$step.results ]] || printf ',\n' >>"$reports/$step.results"
  printf '%s\n' "$result" >>"$reports/$step.results"
}

# Runs a command of distattn that prints JSON, and keeps what it prints among the step's results. What it is at stands
# in the log: of a command that hangs nothing else is left.
measure() {
  say "distattn $*"
  local status=0
  limited "$distattn" "$@" --json -v >"$reports/output.json" || status=$?
  [[ $status -gt 4 ]] || keep <"$reports/output.json" # else it did not end by itself
  return "$status"
}

# What others are made of comes first.
step_tests() {
  local test tests=(primitives elementwise) command_seconds=120
  [[ ! -x $build/bin/test_gpu_hopper_primitives ]] || tests+=(hopper_primitives)
  for test in "${tests[@]}" attention; do
    say "test_gpu_$test"
    attempt run_test "$test"
  done
  say "test_gpu_attention, every mask with every padding"
  command_seconds=$step_seconds
  attempt run_test attention "[.long]"
}

step_validate() { attempt measure validate --backend cuda; }

step_types() {
  local dtype head_dim command_seconds=120
  for dtype in bf16 fp16 fp32; do
    for head_dim in 32 64 96 128 192 256; do
      attempt measure validate --backend cuda --dtype "$dtype" --head-dim "$head_dim" --seq 517 --heads 8 --kv-heads 2 \
        --mask causal,full --window 200,-1 --ranks 1,2,3,8 --schedule ring,zigzag-ring,striped-ring,balanced
    done
  done
}

# Also windows, whose pieces have more queries than keys and fewer.
check_cudnn() {
  local masks sizes common=(bench --backend cuda --provider cudnn --check --dtype bf16 --heads 8 --kv-heads 2
    --head-dim 128 --backward --ranks "1,2,3,4" -n 1)
  for masks in "--mask causal" "--mask causal --window 200,-1" "--mask full --window 100,50"; do
    # shellcheck disable=SC2086 # several words
    attempt measure "${common[@]}" --seq 517 $masks --schedule ring,zigzag-ring,striped-ring
  done
  for sizes in "--seq 1100 --seq-kv 400" "--seq 400 --seq-kv 1100"; do
    # shellcheck disable=SC2086
    attempt measure "${common[@]}" $sizes --mask full --window 300,150 --schedule ring,attention2d
  done
}

step_kernels() {
  local provider providers=(own) heads query key head_dim value_dim why command_seconds=180
  why=$(why_not cudnn)
  if [[ -z $why ]]; then
    providers+=(cudnn)
    check_cudnn
  else
    say "cuDNN is not measured: $why"
    keep <<<"{\"provider\": \"cudnn\", \"not_measured\": $(text <<<"$why")}"
  fi
  for provider in "${providers[@]}"; do
    # query heads, key heads, head_dim and that of values, as published for H100 and H200; the third is MLA's
    for heads in "64 8 128 128" "64 8 64 64" "128 128 192 128" "16 16 256 256"; do
      read -r query key head_dim value_dim <<<"$heads"
      attempt measure bench --backend cuda --provider "$provider" --kernel attend --dtype bf16 --heads "$query" \
        --kv-heads "$key" --head-dim "$head_dim" --value-dim "$value_dim" --seq 2048,4096,8192,16384 -n 3
    done
  done
  attempt measure bench --backend cuda --deterministic --kernel attend --dtype bf16 --heads 64 --kv-heads 8 --head-dim 128 \
    --seq 2048,4096,8192,16384 -n 3
}

step_variants() {
  local order head_dim value_dim command_seconds=150
  for order in "" --deterministic; do
    for head_dim in 64 128 192 256; do
      value_dim=$((head_dim == 192 ? 128 : head_dim))
      # shellcheck disable=SC2086 # no option where it is empty
      attempt measure bench --backend cuda $order --kernel attend-variants --dtype bf16 --heads 16 --kv-heads 2 \
        --head-dim "$head_dim" --value-dim "$value_dim" --seq 8192 -n 2
    done
  done
}

step_bench() {
  local mask graphs common=(bench --backend cuda --dtype bf16 --heads 32 --kv-heads 8 --head-dim 128 --backward -n 5)
  local command_seconds=300
  for mask in full causal; do
    attempt measure "${common[@]}" --seq 16384 --mask "$mask" --schedule ring,zigzag-ring,balanced --ranks 1,4
  done
  for graphs in "" --graphs; do # short steps, each of which waits for the driver
    # shellcheck disable=SC2086 # no option where it is empty
    attempt measure "${common[@]}" --seq 2048 --mask causal --schedule zigzag-ring,burst:zigzag,attention2d --ranks 1,4 \
      --check $graphs
  done
}

step_processes() {
  local gpus visible transport command_seconds=130
  command -v nvidia-smi >/dev/null || skip "nvidia-smi, which counts GPUs, is not installed"
  gpus=$({ nvidia-smi --list-gpus || true; } | wc -l)
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then # of which nvidia-smi takes no notice
    IFS=, read -ra visible <<<"$CUDA_VISIBLE_DEVICES"
    gpus=${#visible[@]}
  fi
  [[ $gpus -ge 2 ]] || skip "one GPU is here, and NCCL needs one for each rank"
  command -v mpirun >/dev/null || skip "mpirun is not installed"
  is_built pmix || skip "this distattn was built without PMIx, by which ranks that mpirun starts find each other"
  for transport in nccl ucx nccl+ucx; do
    if ! is_built "$transport"; then
      say "$transport is not tried: this distattn was built without it"
      keep <<<"{\"transport\": \"$transport\", \"not_tried\": \"this distattn was built without it\"}"
      continue
    fi
    say "validate over $transport on $gpus GPUs"
    attempt limited mpirun --allow-run-as-root --bind-to none -n "$gpus" \
      "$distattn" validate --backend cuda --transport "$transport"
  done
  is_built nccl || return 0
  say "validate all-gathers of whole rows over nccl on $gpus GPUs"
  attempt limited mpirun --allow-run-as-root --bind-to none -n "$gpus" \
    "$distattn" validate --backend cuda --transport nccl --mode gathered --schedule allgather,attention2d
}

sanitize() {
  command -v compute-sanitizer >/dev/null || skip "compute-sanitizer is not installed"
  local tool test tests=(primitives elementwise) command_seconds=$((360 / $#))
  [[ ! -x $build/bin/test_gpu_hopper_primitives ]] || tests+=(hopper_primitives)
  for tool in "$@"; do
    say "compute-sanitizer --tool $tool"
    for test in "${tests[@]}"; do
      attempt limited compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/bin/test_gpu_$test"
    done
    attempt limited compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/bin/test_gpu_attention" "every padding*"
  done
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck synccheck; }

# One step with its limit, as STEP.json: outcome, seconds and results.
run_step() {
  step=$1
  rm -f "$reports/$step".*
  say "step $step"
  local outcome=passed begin=$SECONDS status=0
  timeout -k 15 "$step_seconds" bash packaging/gpu-check.sh --only "$step" 2>&1 | tee "$reports/$step.log" || status=$?
  [[ $status -eq 0 ]] || outcome=failed
  [[ $status -ne 124 && $status -ne 137 ]] || say "step $step needs more than $step_seconds s: ended" | tee -a "$reports/$step.log"
  [[ ! -f $reports/$step.skipped ]] || outcome=skipped
  {
    printf '{"step": "%s", "outcome": "%s", "seconds": %d' "$step" "$outcome" "$((SECONDS - begin))"
    [[ $outcome != skipped ]] || printf ', "why": %s' "$(text <"$reports/$step.skipped")"
    [[ $outcome != failed ]] || printf ', "why": %s' "$(tail -n 12 "$reports/$step.log" | text)"
    printf ', "results": [\n'
    [[ ! -f $reports/$step.results ]] || cat "$reports/$step.results"
    printf ']}\n'
  } >"$reports/$step.json"
  rm -f "$reports/$step".{results,skipped} "$reports"/{output.json,attempt.log}
  say "step $step $outcome"
  [[ $outcome != failed ]]
}

# report.json: the machine, the versions, and every step that has been run so far.
write_report() {
  local each separator=
  {
    printf '{"date": "%s",\n"gpus": %s,\n"kernel": %s,\n"distattn": ' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
      "$({ timeout 60 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit \
        --format=csv,noheader || echo unknown; } | text)" "$(uname -sr | text)"
    cat "$reports/info.json"
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
  [[ ${#failures[@]} -gt 0 ]] || exit 0
  printf -- '-- failed: %s\n' "${failures[@]}"
  exit 1
fi

[[ $# -gt 0 ]] || set -- "${all_steps[@]}"
steps=("$@")
for step in "${steps[@]}"; do
  if [[ " ${all_steps[*]} " != *" $step "* ]]; then
    echo "gpu-check: no step is called $step (there are ${all_steps[*]}): choose among these" >&2
    exit 2
  fi
done
if [[ -e $distattn && ! -x $distattn ]]; then
  echo "gpu-check: $distattn cannot be executed (its mode was lost on the way) run chmod +x $build/bin/*" >&2
  exit 2
fi
[[ -x $distattn ]] || make_build
mkdir -p "$reports"
if ! timeout -k 15 60 "$distattn" info --json >"$reports/info.json"; then
  echo "gpu-check: distattn does not even describe this machine (see above; packaging/gpu-bundle.sh brings libraries)" >&2
  exit 1
fi
why=$(why_not cuda)
if [[ -n $why ]]; then
  echo "gpu-check: nothing was checked: $why" >&2
  exit 3
fi
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
