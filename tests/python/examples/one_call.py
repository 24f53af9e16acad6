"""The README's lines for NumPy."""

import numpy as np
import distattn

q = np.random.default_rng(1).random((1, 4096, 8, 64), np.float32)  # [batch, seq, heads, dim]
o = distattn.attention(q, q, q, causal=True, ranks=4)  # on four threads

print(o.shape)
