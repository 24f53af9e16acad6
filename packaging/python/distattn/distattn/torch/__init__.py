"""Attention over a sequence that is sharded over processes, with gradients.

    comm = distattn.torch.init()                                # under torchrun
    sharding = distattn.torch.Sharding(seq=tokens.shape[1], comm=comm)
    own = sharding.shard(tokens, dim=1)                         # this rank's part; sharding.positions says which
    o = distattn.torch.attention(q, k, v, sharding=sharding, causal=True)
"""

from .._comm import Comm
from ._comm import from_process_group, init
from ._ops import attention, keep_attention
from ._sharding import Sharding

__all__ = ["Comm", "Sharding", "attention", "from_process_group", "init", "keep_attention"]
