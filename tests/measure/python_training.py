#!/usr/bin/env python3
"""Causal attention, forward and backward, through distattn.torch and PyTorch's own in one process, in turns.

Not a test: for people who want to check us. With DISTATTN_LIBRARY or libdistattn installed, and idle cores:

    python tests/measure/python_training.py [--tokens 4096] [--heads 8] [--kv-heads 8] [--dim 128] [--rounds 7]

Both have as many threads. Of all rounds the fastest counts, for each.
"""

import argparse
import os
import time

import torch
import torch.nn.functional as F

import distattn
import distattn.torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, usual in (("tokens", 4096), ("heads", 8), ("kv-heads", 8), ("dim", 128), ("rounds", 7)):
    parser.add_argument(f"--{name}", type=int, default=usual)
given = parser.parse_args()
torch.set_num_threads(len(os.sched_getaffinity(0)))
sharding = distattn.torch.Sharding(seq=given.tokens, comm=distattn.Comm.alone())
q, k, v = (torch.randn(1, given.tokens, heads, given.dim, requires_grad=True)
           for heads in (given.heads, given.kv_heads, given.kv_heads))
d_o = torch.randn_like(q)


def ours():
    return distattn.torch.attention(q, k, v, sharding=sharding, causal=True)


def theirs():
    o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                       enable_gqa=given.heads != given.kv_heads)
    return o.transpose(1, 2)


def seconds(attend):
    begin = time.perf_counter()
    gradients = torch.autograd.grad(attend(), (q, k, v), d_o)
    return time.perf_counter() - begin, gradients


fastest = dict.fromkeys((ours, theirs), float("inf"))
for turn in range(given.rounds + 1):
    results = {}
    for attend in fastest:
        taken, results[attend] = seconds(attend)
        fastest[attend] = min(fastest[attend], taken if turn > 0 else fastest[attend])
difference = max(((one - other).norm() / other.norm()).item() for one, other in zip(*results.values()))
print(f"distattn {1e3 * fastest[ours]:.0f} ms, PyTorch {1e3 * fastest[theirs]:.0f} ms: "
      f"{fastest[theirs] / fastest[ours]:.2f} times; gradients differ by {difference:.0e}; load {os.getloadavg()[0]:.1f}")
