#!/usr/bin/env python3
"""Does the prediction put the fastest schedule first? Over random problems, `distattn bench` measures every schedule.

Not a test: times depend on what else the machine does. Calibrate on a machine at rest first:

    distattn bench --calibrate && python3 tests/peers/ranking.py build/bin/distattn [--problems 30] [--seed 0]

A problem is lost when the schedule with the shortest prediction, forward and backward together, takes over 5 % more
than the fastest one measured. Schedules take turns in short rounds, because a machine that others share changes its
speed from second to second, and of each one's medians the least counts; those within 15 % of the fastest go on for as
many rounds again. Where a run takes milliseconds, a round has more of them. The fastest of many owes some of its place
to luck: it meets the one predicted first again, each beginning as often as the other, and the median of how they
compare is what counts. They meet more often where that median is too near 5 % to say.
"""

import argparse
import collections
import json
import math
import os
import random
import statistics
import subprocess
import sys

MOST_LOST = 0.05
NEAR = 1.15
ROUND_S = 0.04
LEAST_MEETINGS, MOST_MEETINGS = 16, 90


def draw(numbers, tokens):
    """Options of one problem that fits in memory and a few seconds, of one of those numbers of tokens."""
    kv_heads = numbers.choice([1, 2, 4, 8])
    options = {"--ranks": numbers.choice([2, 3, 4, 6, 8]), "--seq": numbers.choice(tokens),
               "--heads": numbers.choice([h for h in (2, 4, 8) if h % kv_heads == 0 or h == kv_heads] or [kv_heads]),
               "--kv-heads": kv_heads, "--head-dim": numbers.choice([32, 64, 128])}
    mask = numbers.choice(["full", "causal", "causal", "window", "documents"])
    options["--mask"] = "full" if mask == "full" else "causal"
    if mask == "window":
        options["--window"] = f"{options['--seq'] // numbers.choice([2, 4, 8])},0"
    if mask == "documents":
        options["--documents"] = "pile"
    return options


def measure(binary, options, runs, schedules="all"):
    """schedule -> [predicted, measured] seconds of both passes."""
    words = [str(word) for option in options.items() for word in option]
    command = [binary, "bench", *words, "--backward", "--schedule", schedules, "-n", str(runs), "-w", "1", "--json", "-q"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    seconds = collections.defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        seconds[row["schedule"]][0] += row["predicted_s"]
        seconds[row["schedule"]][1] += row["median_s"]
    return seconds


def least(rounds):
    """schedule -> the least that it took in a round."""
    return {name: min(one[name][1] for one in rounds if name in one) for name in rounds[-1]}


def at_least(runs, seconds):
    """As many runs as a schedule's turn needs, at the least."""
    return max(runs, math.ceil(ROUND_S / seconds))


def race(binary, options, runs, rounds):
    """The schedule predicted first, the one measured fastest, and the runs of a turn."""
    first_half = [measure(binary, options, runs) for _ in range(rounds)]
    predicted = {name: seconds[0] for name, seconds in first_half[0].items()}
    first, measured = min(predicted, key=predicted.get), least(first_half)
    runs = at_least(runs, measured[first])
    close = [name for name in measured if measured[name] <= NEAR * min(measured.values()) or name == first]
    again = [measure(binary, options, runs, ",".join(close)) for _ in range(rounds)]
    measured = least(first_half + again)
    return first, min(measured, key=measured.get), runs


def interval(values):
    """Order statistics with the median between them in 19 of 20 samples (the binomial as a normal distribution)."""
    count, half = len(values), 0.98 * math.sqrt(len(values))
    ordered = sorted(values)
    return ordered[max(0, math.floor(count / 2 - half))], ordered[min(count, math.ceil(count / 2 + half)) - 1]


def duel(binary, options, first, fastest, runs):
    """By how much more `first` takes than `fastest`. They meet until it is not chance that says whether it is lost."""
    ratios = []
    while len(ratios) < MOST_MEETINGS:
        for order in (first, fastest), (fastest, first):
            seconds = measure(binary, options, runs, ",".join(order))
            ratios.append(seconds[first][1] / seconds[fastest][1])
        low, high = interval(ratios)
        if len(ratios) >= LEAST_MEETINGS and not low <= 1 + MOST_LOST <= high:
            break
    return statistics.median(ratios) - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--first", type=int, default=0, help="problem, of those that the seed gives: to go on later")
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--runs", type=int, default=2, help="in a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096],
                        help="a problem has one of these")
    arguments = parser.parse_args()
    numbers = random.Random(arguments.seed)
    problems = [draw(numbers, arguments.tokens) for _ in range(arguments.first + arguments.problems)][arguments.first:]
    print(f"seed {arguments.seed}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print("| problem | predicted first | fastest | takes more |\n|---|---|---|--:|")
    lost = 0
    for options in problems:
        first, fastest, runs = race(arguments.binary, options, arguments.runs, arguments.rounds)
        more = 0 if first == fastest else duel(arguments.binary, options, first, fastest, runs)
        lost += more > MOST_LOST
        print(f"| {' '.join(str(value) for value in options.values())} | {first} | {fastest} | {100 * more:.1f} % |",
              flush=True)
    print(f"\n{arguments.problems - lost} of {arguments.problems} within {100 * MOST_LOST:.0f} % of the fastest")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
