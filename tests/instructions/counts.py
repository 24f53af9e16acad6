#!/usr/bin/env python3
"""Instructions that small tiles take in the vector kernels, against those that were recorded.

usage: counts.py PROGRAM COUNTS [--record]

Counts do not depend on what else a machine does, as times do. They belong to one compiler and one instruction set:
valgrind knows AVX2 and not AVX-512. A count that grew by more than the tolerance fails; --record writes new ones.
"""

import os
import re
import shutil
import subprocess
import sys

TOLERANCE = 0.01
TILES = ("fp32-d64", "bf16-d128", "one-query")
KERNELS = ("attend", "attend_backward")


def instructions(program, tile, kernel):
    """Of all calls of one kernel, with what it calls."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         f"--toggle-collect=*{kernel}_on_team*", program, tile],
        capture_output=True, text=True, check=False, env={**os.environ, "DISTATTN_ISA": "avx2"})
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or counted is None or int(counted[1]) == 0:
        sys.exit(f"{program} {tile} under valgrind counted nothing of {kernel}: {done.stderr}")
    return int(counted[1])


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return {(tile, kernel): int(count) for tile, kernel, count in lines}


def main():
    program, path, *options = sys.argv[1:]
    if shutil.which("valgrind") is None:
        print("SKIPPED: valgrind was not found")
        return
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if " avx2 " not in file.read():
            print("SKIPPED: this processor has no AVX2")
            return
    counts = {(tile, kernel): instructions(program, tile, kernel) for tile in TILES for kernel in KERNELS}
    if options == ["--record"]:
        with open(path, "w", encoding="utf-8") as file:
            file.write("# tile kernel instructions: g++ 12, AVX2, one thread (counts.py --record)\n")
            file.writelines(f"{tile} {kernel} {count}\n" for (tile, kernel), count in counts.items())
        return
    recorded = read(path)
    grown = []
    for key, count in counts.items():
        share = count / recorded[key] - 1
        print(f"{' '.join(key)}: {count}, {100 * share:+.2f} % of what was recorded")
        if share > TOLERANCE:
            grown.append(f"{' '.join(key)}: {recorded[key]} -> {count}")
    if grown:
        sys.exit("more instructions than recorded:\n  " + "\n  ".join(grown))


main()
