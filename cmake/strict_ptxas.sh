#!/bin/sh
# strict_ptxas.sh SEVERITY ARCHITECTURE COMMAND...: runs a CUDA compiler and says where ptxas spills registers in code
# for that architecture, as sm_80, or notes that it serialises or waits for wgmma (C75xx). SEVERITY error: then it
# fails; warning: it goes on. nvcc has to be told -Xptxas=--verbose.

severity=$1
architecture=$2
shift 2
said=$("$@" 2>&1)
status=$?
if [ $status -ne 0 ]; then
  printf '%s\n' "$said" >&2
  exit $status
fi
faults=$(printf '%s\n' "$said" | awk -v name="'$architecture'" '
  /Compiling entry function/ { counts = index($0, name); entry = $0 }
  /C75[0-9][0-9]/ { print }
  /[1-9][0-9]* bytes spill/ && counts { print entry; print }')
other=$(printf '%s\n' "$said" | grep -vE '^ptxas info|bytes stack frame|C75[0-9][0-9]|^$')
[ -z "$other" ] || printf '%s\n' "$other" >&2
[ -z "$faults" ] && exit 0
printf '%s: ptxas does not compile this as it was meant (see %s)\n%s\n' "$severity" "$0" "$faults" >&2
[ "$severity" = error ] || exit 0
# The object would count as made the next time.
while [ $# -gt 1 ]; do
  [ "$1" = -o ] && rm -f "$2"
  shift
done
exit 1
