#!/usr/bin/env bash
# Sets up and builds as quickstart.sh does, then runs the tests.
# Usage: packaging/test.sh [PRESET...]    (default: release; asan and tsan leave the long tests out; asan searches for input
# that breaks a reader, too; memory and threads are the parts of asan and tsan that take minutes)
# Ends with "N passed, N failed" and, if some were, ", N skipped". Fails when a test failed or none ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -gt 0 ]] || set -- release
passed=0 failed=0 skipped=0

say() { printf -- '-- %s\n' "$*"; }

# Adds up a JUnit report of ctest. A test without its program is "notrun" as a skipped one is, but it failed.
count() {
  local run left_out all
  all=$(grep -c '<testcase ' "$1" || true)
  run=$(grep -c '<testcase .* status="run"' "$1" || true)
  left_out=$(grep -cE '<skipped message="SKIP_|<testcase .* status="disabled"' "$1" || true)
  passed=$((passed + run)) skipped=$((skipped + left_out)) failed=$((failed + all - run - left_out))
}

for preset in "$@"; do
  began=$SECONDS
  packaging/setup.sh "$preset"
  report=$PWD/build/tests-$preset.xml
  mkdir -p build && rm -f "$report"
  say "testing (preset $preset)"
  # One more than cores: some tests wait.
  ctest --preset "$preset" --parallel $(($(nproc) + 1)) --output-junit "$report" </dev/null || true
  if [[ ! -s $report ]]; then
    echo "preset $preset ran no test (ctest wrote no report) see its message above" >&2
    exit 3
  fi
  count "$report"
  say "preset $preset took $((SECONDS - began)) s"
done

printf '\n%d passed, %d failed' "$passed" "$failed"
[[ $skipped -eq 0 ]] || printf ', %d skipped' "$skipped"
printf '\n'
[[ $failed -eq 0 && $passed -gt 0 ]]
