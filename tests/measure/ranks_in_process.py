#!/usr/bin/env python3
"""What it costs to share one process among ranks: the same problem on one rank that has all cores, on as many ranks as
there are cores and on four times as many, in turns.

Not a test: times depend on what else the machine does. 8192 tokens, 8 heads of 128, causal; every schedule given is
compared with the single rank in every round, and the median of how they compare is printed (the least that each took
beside it).

    python3 tests/measure/ranks_in_process.py build/bin/distattn [--rounds 5] [--schedules zigzag-ring,auto]
"""

import argparse
import json
import os
import statistics
import subprocess


def seconds(binary, problem, ranks, schedule, threads):
    """pass -> the least that one took."""
    command = [binary, "bench", *problem, "--backend", "cpu", "--backward", "--ranks", str(ranks), "--threads",
               str(threads), "--schedule", schedule, "-n", "3", "-w", "1", "--json", "-q"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["pass"]: row["least_s"] for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--schedules", default="zigzag-ring,striped-ring,mesh:1x1xP:chunked,auto",
                        help="names; P stands for the ranks")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    problem = ["--seq", str(arguments.seq), "--heads", str(arguments.heads), "--head-dim", str(arguments.head_dim),
               "--mask", "causal"]
    cases = [(ranks, name.replace("P", str(ranks))) for ranks in (cores, 4 * cores)
             for name in arguments.schedules.split(",")]
    single, shared = [], {case: [] for case in cases}
    for _ in range(arguments.rounds):
        single.append(seconds(arguments.binary, problem, 1, "ring", cores))
        for ranks, schedule in cases:
            shared[ranks, schedule].append(seconds(arguments.binary, problem, ranks, schedule, 1))
    print("| ranks | schedule | pass | least | of one rank | takes more, median |\n|--:|---|---|--:|--:|--:|")
    for (ranks, schedule), taken in shared.items():
        for one in ("forward", "backward"):
            more = statistics.median(a[one] / b[one] for a, b in zip(taken, single)) - 1
            print(f"| {ranks} | {schedule} | {one} | {1e3 * min(t[one] for t in taken):.1f} ms | "
                  f"{1e3 * min(t[one] for t in single):.1f} ms | {100 * more:.1f} % |")


if __name__ == "__main__":
    main()
