#!/usr/bin/env python3
"""What a call from Python takes beyond the C API's own, at a shape so small that nothing else shows.

Not a test: for people who want to check us. With DISTATTN_LIBRARY or libdistattn installed, and one idle core:

    python tests/measure/python_overhead.py
"""

import time

import numpy as np

import distattn
from distattn._capi import lib


def microseconds(call, calls=2000, rounds=15):
    """Processor time of the fastest round: what else runs on the machine does not count."""
    fastest = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            call()
        fastest = min(fastest, (time.process_time() - begin) / calls)
    return 1e6 * fastest


q = np.random.default_rng(1).random((1, 8, 1, 8), np.float32)
handle = distattn.Attention(seq=8, heads=1, head_dim=8, threads=1)
handle.forward(q, q, q)
tensors = handle._tensors["forward"][0]

plain = microseconds(lambda: lib.forward(handle.address, tensors))
print(f"distattn_forward: {plain:.1f} us")
for name, call in {"Attention.forward": lambda: handle.forward(q, q, q),
                   "attention": lambda: distattn.attention(q, q, q, threads=1)}.items():
    taken = microseconds(call)
    print(f"{name}: {taken:.1f} us, {taken - plain:.1f} us beyond it")
