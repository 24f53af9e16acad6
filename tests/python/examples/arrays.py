"""Attention of NumPy's arrays, its plan, and gradients on four ranks."""

import numpy as np

import distattn

random = np.random.default_rng(1)
q = random.standard_normal((1, 4096, 8, 64), np.float32)  # [batch, seq, heads, dim]
k, v = random.standard_normal((2, 1, 4096, 2, 64), np.float32)

o = distattn.attention(q, k, v, causal=True)
sharded, lse = distattn.attention(q, k, v, causal=True, ranks=4, schedule="zigzag-ring", return_lse=True)
print(f"largest difference between 1 rank and 4: {np.abs(o - sharded).max():.0e}")

for row in distattn.plan(seq=131072, heads=32, kv_heads=8, head_dim=128, ranks=8, dtype="bfloat16", backward=True,
                         schedule="auto,ring", machine="dgx-h100x8"):
    print(f"{row['schedule']:12} {row['pass']:8} {1e3 * row['predicted_s']:6.1f} ms")

d_o = np.ones_like(q)


def gradients(comm):
    handle = distattn.Attention(seq=4096, heads=8, kv_heads=2, head_dim=64, causal=True, backward=True, comm=comm,
                                schedule="zigzag-ring")
    own = [x[:, handle.positions] for x in (q, k, v)]  # this rank's tokens
    o, lse = handle.forward(*own)
    return handle.backward(d_o[:, handle.positions], *own, o, lse)


for rank, (dq, dk, dv) in enumerate(distattn.run_ranks(4, gradients)):
    print(f"rank {rank}: dq {dq.shape}, dk {dk.shape}, dv {dv.shape}")
