"""Attention as an operator of PyTorch: traced without a break, differentiable, kept by checkpoints.

What changes from step to step, documents and positions, is data of the operator and no part of a traced graph.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor

from .._errors import UsageError
from .._problem import Problem, Request, flag, integers, scores_of, text
from .._tensors import stream_of, view
from ._sharding import Sharding, sharding_of


def _handle(q: Tensor, k: Tensor, v: Tensor, sharding: Sharding, causal: bool, left: int, right: int, first_keys: int,
            scores: Sequence[float], schedule: str, gradients: bool) -> Any:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4 or tensor.shape[1] != sharding.tokens:
            raise UsageError(f"{name} is {tuple(tensor.shape)} (this rank owns {sharding.tokens} tokens): pass [batch, "
                             f"tokens, heads, dim]")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise UsageError(f"{name} is {tensor.dtype} on {tensor.device}, q {q.dtype} on {q.device} (one attention has "
                             f"one of each): convert it")
    sizes = Problem.of(seq=sharding.seq, heads=q.shape[2], head_dim=q.shape[3], kv_heads=k.shape[2],
                       value_dim=v.shape[3], batch=q.shape[0], dtype=q.dtype, scores=tuple(scores))
    problem = Problem(**{**sizes.__dict__, "mask": sharding.mask(causal, (left, right), first_keys)})
    stream = stream_of(q, view(q.detach(), "q").layout)
    request = Request.of(problem, schedule=schedule or sharding.schedule, backward=gradients, cuda_stream=stream)
    return sharding.handle(problem, request)


def _documents(cu_seqlens: Tensor) -> list[int]:
    """Of [documents + 1], or of those of queries and those of keys, which are the same."""
    listed: list[Any] = cu_seqlens.tolist()
    if cu_seqlens.dim() == 2 and listed[0] != listed[-1]:
        raise UsageError("documents of keys differ from those of queries (a sequence sees itself): pass the same")
    return listed if cu_seqlens.dim() == 1 else listed[0]


def _call(handle: Any, which: str, **tensors: Tensor) -> None:
    with torch.no_grad():
        handle.call(which, {name: view(tensor, name) for name, tensor in tensors.items()})


@torch.library.custom_op("distattn::forward", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, positions: Tensor | None, sharding: int,
             causal: bool, left: int, right: int, first_keys: int, scores: Sequence[float], schedule: str,
             gradients: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The third result is the number of the sharding, for the backward pass."""
    own = sharding_of(sharding)
    own = own if cu_seqlens is None else own.with_documents(_documents(cu_seqlens))
    if positions is not None:
        own.check_positions(positions)
    handle = _handle(q, k, v, own, causal, left, right, first_keys, scores, schedule, gradients)
    o, lse, _ = _new_results(q, v)
    _call(handle, "forward", q=q, k=k, v=v, o=o, lse=lse)
    return o, lse, torch.tensor(own.number)


def _new_results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, tokens, heads, _ = q.shape
    statistics = torch.float64 if q.dtype == torch.float64 else torch.float32
    return (q.new_empty((batch, tokens, heads, v.shape[3])), q.new_empty((batch, heads, tokens), dtype=statistics),
            torch.empty((), dtype=torch.int64, device="cpu"))


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _new_results(q, v)


@torch.library.custom_op("distattn::backward", mutates_args=())
def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, number: Tensor, causal: bool,
              left: int, right: int, first_keys: int, scores: Sequence[float],
              schedule: str) -> tuple[Tensor, Tensor, Tensor]:
    handle = _handle(q, k, v, sharding_of(int(number)), causal, left, right, first_keys, scores, schedule, True)
    dq, dk, dv = _new_gradients(q, k, v)
    _call(handle, "backward", d_o=d_o, q=q, k=k, v=v, o=o, lse=lse, dq=dq, dk=dk, dv=dv)
    return dq, dk, dv


def _new_gradients(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (each.new_empty(each.shape) for each in inputs)
    return dq, dk, dv


@_backward.register_fake
def _(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _new_gradients(q, k, v)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, _, _, _, *options, _ = inputs  # neither documents, positions and the sharding nor whether to differentiate
    ctx.save_for_backward(q, k, v, *output)
    ctx.options, ctx.inputs = options, len(inputs)
    ctx.sharding = _kept(output[2])
    ctx.set_materialize_grads(False)


def _kept(number: Tensor) -> Sharding | None:
    """The sharding itself, so that it stays until the backward pass; None in a graph that is being traced."""
    return None if torch.compiler.is_compiling() or type(number) is not Tensor else sharding_of(int(number))


def _differentiate(ctx: Any, d_o: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    gradients = (None, None, None) if d_o is None else _backward(d_o, *ctx.saved_tensors, *ctx.options)
    return (*gradients, *[None] * (ctx.inputs - 3))


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)


def attention(q: Tensor, k: Tensor, v: Tensor, *, sharding: Sharding, causal: bool = False,
              window_size: tuple[int, int] = (-1, -1), cu_seqlens: Tensor | Sequence[int] | None = None,
              first_keys: int = 0, softmax_scale: float | None = None, schedule: str | None = None,
              return_lse: bool = False, positions: Tensor | None = None, **scores: Any) -> Any:
    """Exact attention of this rank's queries to the keys of all ranks, [batch, tokens, heads, dim] each. A collective.

    Masks and scale mean what they mean in flash-attn. Documents are the sharding's, or for this call `cu_seqlens`: 0, …,
    seq, the same on all ranks. `schedule` is one of the sharding's layout; None: a ring. With return_lse: (o, lse), lse
    [batch, heads, tokens], through which no gradient flows. `positions` that are given are compared with those of this
    rank's tokens.
    """
    if not isinstance(sharding, Sharding):
        raise UsageError(f"sharding is a {type(sharding).__name__} (who owns which tokens): pass a "
                         f"distattn.torch.Sharding")
    return attend(q, k, v, sharding.number, causal, window_size, cu_seqlens, first_keys,
                  scores_of(softmax_scale=softmax_scale, **scores), schedule, return_lse, positions)


def attend(q: Tensor, k: Tensor, v: Tensor, number: int, causal: bool, window_size: tuple[int, int],
           cu_seqlens: Tensor | Sequence[int] | None, first_keys: int, scores: tuple[float, ...], schedule: str | None,
           return_lse: bool, positions: Tensor | None) -> Any:
    """The same in the sharding of a number; 0 is the one that is current when it is computed."""
    left, right = window_size
    if torch.is_autocast_enabled(q.device.type):  # as PyTorch's own attention does
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    if not torch.compiler.is_compiling():
        flag(causal, "causal")
        integers((left, right, first_keys), "window_size and first_keys")
        text(schedule or "", "schedule")
    documents = cu_seqlens if cu_seqlens is None or isinstance(cu_seqlens, Tensor) else \
        torch.tensor(integers(cu_seqlens, "cu_seqlens"))
    o, lse, _ = _forward(q, k, v, documents, positions, number, causal, left, right, first_keys, scores, schedule or "",
                         torch.is_grad_enabled())
    return (o, lse.detach()) if return_lse else o


def keep_attention() -> Any:
    """The context_fn of a checkpoint that keeps each attention's (o, lse) and computes everything else again:

    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False, context_fn=distattn.torch.keep_attention)
    """
    contexts: Any = torch.utils.checkpoint.create_selective_checkpoint_contexts
    return contexts([torch.ops.distattn.forward.default])
