#!/usr/bin/env python3
"""What a rank's handle holds in host memory, beside what plan says its buffers need.

Not a test: for people who want to check us. With DISTATTN_LIBRARY or libdistattn installed, alone or with a process for
each rank:

    torchrun --no-python --nproc-per-node 2 python tests/measure/handle_memory.py [SEQ HEADS KV_HEADS HEAD_DIM]

Prints MiB. Tensors of the caller's are not counted.
"""

import sys

import numpy as np

import distattn

SCHEDULE = "zigzag-ring"
seq, heads, kv_heads, dim = map(int, sys.argv[1:] or (8192, 8, 8, 64))
comm = distattn.Comm.from_environment()


def resident():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def measured(tokens):
    """Growth in the first forward and the first backward pass of a handle."""
    handle = distattn.Attention(seq=tokens, heads=heads, kv_heads=kv_heads, head_dim=dim, comm=comm, causal=True,
                                backward=True, schedule=SCHEDULE)
    q, k, v, d_o = (np.ones((handle.tokens, count, dim), np.float32) for count in (heads, kv_heads, kv_heads, heads))
    before = resident()
    o, lse = handle.forward(q, k, v)
    between = resident()
    gradients = handle.backward(d_o, q, k, v, o, lse)
    after = resident()
    handle.close()
    made = [sum(array.nbytes for array in arrays) / 2**20 for arrays in ((o, lse), gradients)]
    return between - before - made[0], after - between - made[1]


measured(64 * comm.size)  # what is loaded once
grown = measured(seq)
if comm.rank == 0:
    rows = distattn.plan(seq=seq, heads=heads, kv_heads=kv_heads, head_dim=dim, ranks=comm.size, schedule=SCHEDULE,
                         backward=True)
    for row, growth in zip(rows, grown):
        print(f"{row['pass']}: memory_bytes {row['memory_bytes'] / 2**20:.1f}, of them peak_remote_bytes "
              f"{row['peak_remote_bytes'] / 2**20:.1f}; the process grew by {growth:.1f}")
comm.close()
