#!/usr/bin/env python3
"""PyTorch's attention on this machine's cores next to `distattn bench`, on the same shapes, in turns.

Not a test: for people who want to check us. In a virtual environment with `pip install torch numpy`:

    python tests/peers/pytorch_sdpa.py build/bin/distattn [--rounds 3] [--only 4096] [--dtype bf16] [--json]

Both get the same number of threads. A round measures one and then the other; of all rounds the fastest counts, for both.
PyTorch's backward pass is timed alone, as ours is. Masks that PyTorch has no name for (windows, documents) are given to
it as a boolean matrix; documents also as it is best served, with one call for each.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    options: tuple = ("--mask", "full")
    window: int = 0
    documents: str = ""
    call_per_document: bool = False
    queries: int = 0  # as a server computes them, without gradients; 0: a query for each token

    def passes(self):
        return ("forward",) if self.queries else ("forward", "backward")

    def arguments(self):
        length = ["--seq", self.queries, "--seq-kv", self.tokens] if self.queries else ["--seq", self.tokens]
        return [*length, "--heads", self.heads, "--kv-heads", self.kv_heads, "--head-dim", self.head_dim, *self.options]


CAUSAL = ("--mask", "causal")
SHAPES = [
    Shape("4096 full, 8 heads of 128", 4096, 8, 8, 128),
    Shape("4096 causal, 8 heads of 128", 4096, 8, 8, 128, CAUSAL),
    Shape("4096 causal, 8/2 heads of 64", 4096, 8, 2, 64, CAUSAL),
    Shape("1024 causal, 8 heads of 128", 1024, 8, 8, 128, CAUSAL),
    Shape("16384 window 512, 8 heads of 128", 16384, 8, 8, 128, (*CAUSAL, "--window", "511,0"), window=512),
    Shape("32768 Pile documents, a call each", 32768, 8, 8, 128, (*CAUSAL, "--documents", "pile"), documents="pile",
          call_per_document=True),
    Shape("32768 Pile documents, same mask", 32768, 8, 8, 128, (*CAUSAL, "--documents", "pile"), documents="pile"),
    Shape("1 query of 32768 keys, 32/8 heads of 128", 32768, 32, 8, 128, queries=1),
    Shape("256 queries of 16384 keys, 32/8 heads of 128", 16384, 32, 8, 128, queries=256),
]


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def ours(binary, shape, dtype, runs):
    """pass -> the row that `bench` prints."""
    command = [binary, "bench", *map(str, shape.arguments()), "--dtype", dtype, "--ranks", "1", "--schedule", "ring",
               "--backend", "cpu", "-n", str(runs), "-w", "1", "--json", "-q"]
    if "backward" in shape.passes():
        command.append("--backward")
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["pass"]: row for row in rows}


def document_lengths(binary, shape):
    """Lengths of the documents that `bench` draws: `show` prints where those of the same problem end."""
    shown = subprocess.run([binary, "show", *map(str, shape.arguments()), "--ranks", "1", "--schedule", "ring",
                            "--format", "json"], check=True, capture_output=True, text=True).stdout
    ends = json.loads(shown)["outline"]["sharding"]["problem"]["mask"]["documents"]
    return [end - begin for begin, end in itertools.pairwise(ends) if end > begin]


class Theirs:
    """PyTorch on one shape: what is called, and how often a second."""

    def __init__(self, shape, dtype, lengths):
        torch.manual_seed(0)
        trains = "backward" in shape.passes()
        sizes = [(1, shape.heads, shape.queries or shape.tokens, shape.head_dim),
                 *2 * [(1, shape.kv_heads, shape.tokens, shape.head_dim)]]
        self.q, self.k, self.v = (torch.randn(size, dtype=DTYPES[dtype], requires_grad=trains) for size in sizes)
        self.gradient = torch.randn(sizes[0], dtype=DTYPES[dtype])
        self.shape = shape
        self.lengths = lengths if shape.call_per_document else None
        self.mask = None
        if shape.window:
            distance = torch.arange(shape.tokens)[:, None] - torch.arange(shape.tokens)[None, :]
            self.mask = (distance >= 0) & (distance < shape.window)
        if shape.documents and not shape.call_per_document:
            self.mask = torch.block_diag(*(torch.ones(length, length, dtype=torch.bool).tril() for length in lengths))

    def forward(self):
        grouped = self.shape.heads != self.shape.kv_heads
        if self.lengths:
            parts = zip(*(tensor.split(self.lengths, dim=2) for tensor in (self.q, self.k, self.v)))
            return torch.cat([F.scaled_dot_product_attention(*part, is_causal=True) for part in parts], dim=2)
        causal = "causal" in self.shape.options and self.mask is None
        return F.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self.mask, is_causal=causal,
                                              enable_gqa=grouped)

    def measure(self, runs):
        """pass -> seconds of the fastest of `runs`, after one that does not count."""
        best = dict.fromkeys(self.shape.passes(), float("inf"))
        for run in range(runs + 1):
            start = time.perf_counter()
            out = self.forward()
            middle = time.perf_counter()
            if "backward" in best:
                torch.autograd.grad(out, (self.q, self.k, self.v), self.gradient)
            end = time.perf_counter()
            for one, seconds in zip(best, (middle - start, end - middle)):
                best[one] = min(best[one], seconds if run > 0 else best[one])
        return best


def compare(binary, shape, dtype, rounds, runs):
    """pass -> {ours_s, theirs_s, share}: the fastest of all rounds."""
    theirs = Theirs(shape, dtype, document_lengths(binary, shape) if shape.documents else None)
    result = {one: {"ours_s": float("inf"), "theirs_s": float("inf"), "share": 0.0} for one in shape.passes()}
    for _ in range(rounds):
        rows, seconds = ours(binary, shape, dtype, runs), theirs.measure(runs)
        for one, best in result.items():
            row = rows[one]
            best["ours_s"] = min(best["ours_s"], row["least_s"])
            best["theirs_s"] = min(best["theirs_s"], seconds[one])
            best["share"] = max(best["share"], row["share"] * row["median_s"] / row["least_s"])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5, help="in a round")
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    results = []
    if not arguments.json:
        print("| shape | pass | ours | of peak | PyTorch | ours is faster |\n|---|---|--:|--:|--:|--:|")
    for shape in (shape for shape in SHAPES if arguments.only in shape.name):
        for one, best in compare(arguments.binary, shape, arguments.dtype, arguments.rounds, arguments.runs).items():
            ratio = best["theirs_s"] / best["ours_s"]
            results.append({"shape": shape.name, "pass": one, **best, "ratio": ratio})
            if not arguments.json:
                print(f"| {shape.name} | {one} | {1e3 * best['ours_s']:.1f} ms | {100 * best['share']:.0f} % | "
                      f"{1e3 * best['theirs_s']:.1f} ms | {ratio:.2f} x |", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
