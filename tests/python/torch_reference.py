"""Tensors that are the same on every rank, and PyTorch's own attention of them in float64."""

import torch
import torch.nn.functional as F

import distattn.torch

TOKENS = 61
COMM = distattn.torch.init()
LIMITS = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def random(*shape, dtype=torch.float32, seed=0):
    """The same on every rank."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tensors(dtype, heads=4, kv_heads=2, dim=16, batch=2):
    return [random(batch, TOKENS, count, dim, dtype=dtype, seed=seed)
            for seed, count in enumerate((heads, kv_heads, kv_heads, heads))]


def visible(causal=False, window_size=(-1, -1), cu_seqlens=None):
    at = torch.arange(TOKENS)
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    if causal:
        seen &= at[None, :] <= at[:, None]
    if window_size[0] >= 0:
        seen &= at[None, :] >= at[:, None] - window_size[0]
    if cu_seqlens:
        document = torch.searchsorted(torch.tensor(cu_seqlens), at, right=True)
        seen &= document[None, :] == document[:, None]
    return seen


def reference(q, k, v, d_o, scale=None, **mask):
    """o, dq, dk, dv of the whole sequence in float64."""
    q, k, v = (x.to(torch.float64, copy=True).requires_grad_() for x in (q, k, v))
    o = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=visible(**mask), scale=scale,
                                       enable_gqa=True).transpose(1, 2)
    o.backward(d_o.double())
    return [o.detach(), q.grad, k.grad, v.grad]


def sharded(q, k, v, d_o, sharding, **options):
    """The same by all ranks, put together."""
    own = [sharding.shard(x).requires_grad_() for x in (q, k, v)]
    o = distattn.torch.attention(*own, sharding=sharding, **options)
    o.backward(sharding.shard(d_o))
    return [sharding.unshard(x) for x in (o.detach(), *(x.grad for x in own))]


def gathered(x):
    """Every rank's."""
    everyone = COMM.all_gather(x.numpy(), [x.numel() * x.element_size()] * COMM.size)
    return list(torch.frombuffer(everyone, dtype=x.dtype).view(COMM.size, *x.shape))


def error(result, expected):
    return ((result.double() - expected).norm() / expected.norm()).item()
