#!/usr/bin/env python3
"""Attention over several processes, forward and backward, next to other systems for PyTorch, in turns on one machine.

Not a test: for people who want to check us. Our packages are installed, or DISTATTN_LIBRARY and PYTHONPATH say where
they are; with PyTorch and NumPy:

    python tests/peers/context_parallel.py [--ranks 2,4] [--rounds 3] [--only 8192] [--json] [--without SYSTEM]
        [--python ring-attention-pytorch=VENV/bin/python]

Every system has processes of its own, each bound to one core and with one thread. They wait while another system has
its turn; of all rounds the fastest counts, for each. Data of ours goes over UCX, that of the others over gloo. Memory
is the peak of the busiest rank beyond its own tensors; bytes are what a rank sends; errors are relative to float64, of
the first key head and its query heads, the worst of the three gradients. A system that is not installed, or does not
compute a case, is left out, and its reason is printed.
"""

import argparse
import dataclasses
import itertools
import json
import math
import os
import pathlib
import secrets
import socket
import sys
import tempfile

import numpy as np
import torch
from turns import Process, add_system_options, chosen_systems, of_ours, ratio_text

RANK = pathlib.Path(__file__).with_name("context_parallel_rank.py")
SYSTEMS = ("distattn", "distattn, placed", "all-gather + SDPA", "Ulysses + SDPA", "ring-attention-pytorch")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    tokens: int
    heads: int
    kv_heads: int
    dim: int
    packed: bool = False

    def ends(self):
        """Of documents: lengths as those of texts, a few of them long."""
        if not self.packed:
            return [self.tokens]
        random, ends = np.random.default_rng(7), [0]
        while ends[-1] < self.tokens:
            ends.append(min(self.tokens, ends[-1] + int(np.clip(random.lognormal(6.5, 1.2), 16, self.tokens // 2))))
        return ends[1:]

    def json(self):
        return json.dumps({**dataclasses.asdict(self), "ends": self.ends()})


CASES = [
    Case("8192 causal, 8 heads of 128", 8192, 8, 8, 128),
    Case("8192 causal, 8/2 heads of 64", 8192, 8, 2, 64),
    Case("8192 packed, 8/2 heads of 128", 8192, 8, 2, 128, packed=True),
    Case("32768 causal, 8/2 heads of 64", 32768, 8, 2, 64),
    Case("32768 packed, 8/2 heads of 128", 32768, 8, 2, 128, packed=True),
]


def exact_results(case, folder):
    """A file of o, dq, dk and dv of the first key head's group, in float64, [tokens, heads, dim]."""
    generator = torch.Generator().manual_seed(1)
    counts = (case.heads, case.kv_heads, case.kv_heads, case.heads)
    group = case.heads // case.kv_heads
    q, k, v, d_o = (torch.randn(1, case.tokens, count, case.dim, generator=generator)[0, :, :kept].double().transpose(0, 1)
                    for count, kept in zip(counts, (group, 1, 1, group)))
    o, dq, dk, dv = (torch.zeros_like(x) for x in (q, q, k, v))
    for first, last in itertools.pairwise([0, *case.ends()]):
        for begin in range(first, last, 256):
            rows, keys = slice(begin, min(begin + 256, last)), slice(first, min(begin + 256, last))
            seen = torch.ones(rows.stop - begin, keys.stop - first, dtype=torch.bool).tril_(begin - first)
            scores = q[:, rows] @ k[:, keys].mT / math.sqrt(case.dim)
            weights = scores.masked_fill_(~seen, -math.inf).softmax(-1)
            o[:, rows] = weights @ v[:, keys]
            d_scores = weights * (d_o[:, rows] @ v[:, keys].mT - (d_o[:, rows] * o[:, rows]).sum(-1, keepdim=True))
            dq[:, rows] = d_scores @ k[:, keys] / math.sqrt(case.dim)
            dk[0, keys] += (d_scores.mT @ q[:, rows]).sum(0) / math.sqrt(case.dim)
            dv[0, keys] += (weights.mT @ d_o[:, rows]).sum(0)
    path = pathlib.Path(folder, "exact.npz")
    np.savez(path, **{name: x.transpose(0, 1).numpy() for name, x in zip(("o", "dq", "dk", "dv"), (o, dq, dk, dv))})
    return path


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Processes:
    """The ranks of one system, which do what they are told."""

    def __init__(self, python, system, case, ranks, exact):
        common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(),
                  "DISTATTN_TOKEN": secrets.token_hex(8), "OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1}
        self.each = [Process([python, RANK, system, case.json(), exact], **common, RANK=rank, LOCAL_RANK=rank)
                     for rank in range(ranks)]
        try:
            answers = self.answers()
        except RuntimeError as error:
            answers = [{"skipped": str(error)}]
        self.skipped = next((answer["skipped"] for answer in answers if "skipped" in answer), None)

    def answers(self):
        return [process.answer() for process in self.each]

    def tell(self, word):
        for process in self.each:
            process.say(word)
        return self.answers()

    def end(self):
        for process in self.each:
            process.close()
        for process in self.each:
            process.wait()


def start(case, ranks, exact, systems, pythons):
    """system -> its ranks, of those that compute the case. Their first run does not count."""
    running = {}
    for system in systems:
        processes = Processes(pythons.get(system, sys.executable), system, case, ranks, exact)
        if processes.skipped is None:
            try:
                processes.tell("run")
                running[system] = processes
                continue
            except RuntimeError as error:
                processes.skipped = str(error)
        print(f"{case.name}, {ranks} ranks: no {system} ({processes.skipped})", file=sys.stderr)
        processes.end()
    return running


def compare(case, ranks, exact, systems, pythons, rounds):
    """system -> what was measured."""
    running = start(case, ranks, exact, systems, pythons)
    measured = {system: {"forward_s": math.inf, "seconds": math.inf} for system in running}
    try:
        for turn in range(rounds):
            for system in list(running)[::1 if turn % 2 == 0 else -1]:
                answers = running[system].tell("run")
                for name, given in (("forward_s", "forward"), ("seconds", "seconds")):
                    taken = max(answer[given] for answer in answers)
                    measured[system][name] = min(measured[system][name], taken)
                measured[system]["sent_bytes"] = max(answer["sent"] for answer in answers)
        for system, processes in running.items():
            answers = processes.tell("errors")
            off = [math.sqrt(sum(answer["squares"][i][0] for answer in answers) /
                             sum(answer["squares"][i][1] for answer in answers)) for i in range(4)]
            measured[system] |= {"error": off[0], "gradient_error": max(off[1:]),
                                 "peak_bytes": max(answer["peak"] for answer in answers)}
    finally:
        for processes in running.values():
            processes.end()
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    add_system_options(parser)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    systems, pythons = chosen_systems(parser, arguments, SYSTEMS)
    print(f"PyTorch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}",
          file=sys.stderr)
    results = []
    if not arguments.json:
        print("| case | ranks | system | forward | both passes | of ours | memory | sent | error of o | of gradients |\n"
              "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for case in (case for case in CASES if arguments.only in case.name):
        with tempfile.TemporaryDirectory() as folder:
            exact = exact_results(case, folder)
            for ranks in map(int, arguments.ranks.split(",")):
                measured = compare(case, ranks, exact, systems, pythons, arguments.rounds)
                for system, row in measured.items():
                    ratio = of_ours(row, measured)
                    results.append({"case": case.name, "ranks": ranks, "system": system, "ratio": ratio, **row})
                    if not arguments.json:
                        print(f"| {case.name} | {ranks} | {system} | {row['forward_s']:.2f} s | {row['seconds']:.2f} s | "
                              f"{ratio_text(ratio)} | {row['peak_bytes'] / 2**20:.0f} MiB | "
                              f"{row['sent_bytes'] / 2**20:.0f} MiB | {row['error']:.1e} | {row['gradient_error']:.1e} |",
                              flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
