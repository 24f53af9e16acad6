"""Exact attention over sequences that are too long for one device: sharded over ranks, planned as data, proved before
it runs, and the same on CPUs and GPUs.

    o = distattn.attention(q, k, v, causal=True)           # one process, NumPy, PyTorch or DLPack
    rows = distattn.plan(seq=131072, heads=32, head_dim=128, ranks=8, machine="dgx-h100x8")

`distattn.torch` shards a sequence over processes, with gradients; `distattn.transformers` registers that as an
attention of transformers. Each needs its package.
"""

from ._attention import Attention, attention
from ._capi import lib
from ._comm import Comm, run_ranks
from ._errors import EndedError, Error, PeerError, RankTimeoutError, UnavailableError, UsageError
from ._plan import Plan, info, layout, plan
from ._problem import tree_mask

__all__ = ["Attention", "Comm", "EndedError", "Error", "PeerError", "Plan", "RankTimeoutError", "UnavailableError",
           "UsageError", "__version__", "attention", "info", "layout", "plan", "run_ranks", "tree_mask"]
__version__: str = lib.version().decode()
