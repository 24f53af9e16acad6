#!/usr/bin/env python3
"""What placements gain over the published shapes, predicted: one table of geometric means over drawn packings.

For each machine, number of ranks and corpus, `auto` is planned on packings of seeds 0 to N-1, straight and routed, and
the best other schedule that it ranks is compared with the placement. Nothing runs, and nothing is measured: the times are
those of one simulation. Some minutes for ten seeds.

usage: placements.py build/bin/distattn [SEEDS]
"""
import math
import os
import re
import subprocess
import sys

DISTATTN = os.path.abspath(sys.argv[1])
SEEDS = range(int(sys.argv[2]) if len(sys.argv) > 2 else 10)
SLOW = os.path.join(os.path.dirname(__file__), "../../docs/machines/dgx-h100x4-slow.json")
SETTINGS = [("dgx-h100x8", 8), ("dgx-h100x8", 32), ("dgx-h100x8", 64), (SLOW, 32), ("ethernet-h100x64", 8),
            ("ethernet-h100x64", 32), ("ethernet-h100x64", 64)]
CORPORA = ("pile", "prolong512k", "prolong64k")
SHAPE = ("--seq", "512K", "--heads", "32", "--kv-heads", "8", "--head-dim", "128", "--dtype", "bf16", "--backward")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1}


def others(notes):
    """Seconds of the best schedule that is no placement, of each search."""
    for chosen, amount, unit, rest in re.findall(r"auto on .*?: (\S+) \(.*?\), ([\d.]+) (us|ms|s)(.*)", notes):
        seconds = float(amount) * UNITS[unit]
        if chosen != "placed":
            yield seconds
            continue
        second = re.search(r"; second \S+ \(.*?\) \+([\d.]+) %", rest)
        if second:
            yield seconds * (1 + float(second.group(1)) / 100)


def planned(machine, ranks, corpus, seed, *more):
    done = subprocess.run([DISTATTN, "plan", *SHAPE, "--machine", machine, "--ranks", str(ranks), "--documents", corpus,
                           "--seed", str(seed), *more], capture_output=True, text=True, check=True)
    return done.stderr


def ratio(machine, ranks, corpus, seed):
    best = min(others(planned(machine, ranks, corpus, seed, "--schedule", "auto", "--routes", "both")))
    placed = re.search(r"placed on .*?: ([\d.]+) times the lower bound of ([\d.]+) (us|ms|s)",
                       planned(machine, ranks, corpus, seed, "--schedule", "placed"))
    return best / (float(placed[1]) * float(placed[2]) * UNITS[placed[3]]), float(placed[1])


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


everything = []
print("| machine, ranks | " + " | ".join(CORPORA) + " | times the lower bound |")
print("|---|" + "---:|" * (len(CORPORA) + 1))
for of_machine, of_ranks in SETTINGS:
    cells, bounds = [], []
    for of_corpus in CORPORA:
        pairs = [ratio(of_machine, of_ranks, of_corpus, seed) for seed in SEEDS]
        everything += [max(1, gain) for gain, _ in pairs]
        bounds += [bound for _, bound in pairs]
        cells.append(f"{mean([gain for gain, _ in pairs]):.2f}")
    name = os.path.basename(of_machine).removesuffix(".json")
    print(f"| {name}, {of_ranks} | " + " | ".join(cells) + f" | {mean(bounds):.2f} |", flush=True)
print(f"\nall {len(everything)} packings, the better of both taken: {mean(everything):.2f}")
