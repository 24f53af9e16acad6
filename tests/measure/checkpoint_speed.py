#!/usr/bin/env python3
"""How much faster a training step is when the attention's output is kept than when whole layers are recomputed.

Runs both policies in turn, several rounds each, for sequences of 8 to 64 times the hidden size, and prints the best step
of each beside what the count of multiplications says: (9N + 96h) : (7N + 96h) where the feed-forward is 8h/3 wide.

Usage: checkpoint_speed.py DISTATTN [--hidden 256] [--ranks 2] [--schedule zigzag-ring] [--rounds 5]
"""

import argparse
import json
import subprocess

POLICIES = "layer", "attention-output"


def seconds_of_step(arguments, sequence, policy):
    command = [arguments.distattn, "step", "--json", "--layers", "2", "--vocab", "256", "--steps", "3"]
    command += ["--hidden", str(arguments.hidden), "--heads", str(max(1, arguments.hidden // 64))]
    command += ["--seq", str(sequence), "--ranks", str(arguments.ranks), "--schedule", arguments.schedule]
    command += ["--checkpoint", policy]
    steps = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return min(step["seconds"] for step in steps[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("distattn", help="the program, as build/bin/distattn")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--schedule", default="zigzag-ring")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ratios", type=int, nargs="+", default=[8, 16, 32, 64], help="sequence by hidden size")
    arguments = parser.parse_args()

    print("N/h  sequence    layer  attention-output  measured  by count", flush=True)
    for ratio in arguments.ratios:
        sequence = ratio * arguments.hidden
        rounds = [[seconds_of_step(arguments, sequence, policy) for policy in POLICIES] for _ in range(arguments.rounds)]
        layer, attention_output = map(min, zip(*rounds))
        by_count = (9 * ratio + 96) / (7 * ratio + 96)
        print(f"{ratio:3}  {sequence:8}  {layer:5.3f} s  {attention_output:14.3f} s  {layer / attention_output:7.3f}x"
              f"  {by_count:7.3f}x", flush=True)


if __name__ == "__main__":
    main()
