"""A layer's attention over the processes of torchrun: torchrun --nproc-per-node 4 one_layer.py"""

import torch

import distattn.torch

sharding = distattn.torch.Sharding(seq=4096, comm=distattn.torch.init())
q, k, v = (torch.randn(1, sharding.tokens, 8, 64, requires_grad=True) for _ in range(3))  # this rank's tokens
o = distattn.torch.attention(q, k, v, sharding=sharding, causal=True)
o.sum().backward()

print(sharding, tuple(q.grad.shape))
