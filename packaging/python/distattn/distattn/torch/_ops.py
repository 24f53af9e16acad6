"""Attention as an operator of PyTorch: traced without a break, differentiable, kept by checkpoints.

What changes from step to step, the sharding, documents and positions, is data of the operator and no part of a graph.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd import forward_ad

from .._errors import UsageError
from .._problem import (DROPOUT, Mask, Problem, Request, check_values, flag, integer, integers, scores_of, seed_of,
                        taken_sinks, text, window_of)
from .._tensors import stream_of, view
from ._sharding import Sharding, sharding_of


def _operator(kernel: Callable[..., Any]) -> Any:
    """The operator distattn::forward of _forward(). What torch.library.custom_op() makes is the same, but imports
    torch._dynamo at its first call, which takes seconds and 140 MB of those who never compile."""
    name = f"distattn::{kernel.__name__.removeprefix('_')}"

    @functools.wraps(kernel)
    def untraced(*given: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return kernel(*given)
        disabled = getattr(untraced, "disabled", None)
        if disabled is None:
            disabled = untraced.disabled = torch.compiler.disable(kernel)  # type: ignore[attr-defined]
        return disabled(*given)

    torch.library.define(name, torch.library.infer_schema(kernel, mutates_args=()), tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(name, "default", untraced)
    return getattr(torch.ops.distattn, name.partition("::")[2]).default


def _handle(q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None, sharding: Sharding, causal: bool, left: int,
            right: int, first_keys: int, scores: Sequence[float], schedule: str, value_dim: int, max_logit: bool,
            gradients: bool) -> Any:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor is None:
            continue
        if tensor.dim() != 4 or tensor.shape[1] != sharding.tokens:
            raise UsageError(f"{name} is {tuple(tensor.shape)} (this rank owns {sharding.tokens} tokens): pass [batch, "
                             f"tokens, heads, dim]")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise UsageError(f"{name} is {tensor.dtype} on {tensor.device}, q {q.dtype} on {q.device} (one attention has "
                             f"one of each): convert it")
    problem, request = _asked(sharding.seq, q.shape, k.shape[2], value_dim if v is None else v.shape[3], v is None,
                              q.dtype, sinks is not None,
                              sharding.mask(causal, (left, right), first_keys), tuple(scores), max_logit,
                              schedule or sharding.schedule, gradients,
                              stream_of(q, view(q.detach(), "q").layout))
    return sharding.handle(problem, request)


@functools.lru_cache(maxsize=256)
def _asked(seq: int, q: torch.Size, kv_heads: int, value_dim: int, shared_kv: bool, dtype: torch.dtype,
           sink_logits: bool, mask: Mask, scores: tuple[float, ...], max_logit: bool, schedule: str, gradients: bool,
           cuda_stream: int) -> tuple[Problem, Request]:
    sizes = Problem.of(seq=seq, heads=q[2], head_dim=q[3], kv_heads=kv_heads, value_dim=value_dim, batch=q[0],
                       dtype=dtype, scores=scores, sink_logits=sink_logits, max_logit=max_logit, shared_kv=shared_kv)
    problem = Problem(**{**sizes.__dict__, "mask": mask})
    return problem, Request.of(problem, schedule=schedule, backward=gradients, cuda_stream=cuda_stream)


def _documents(cu_seqlens: Tensor) -> list[int]:
    """Of [documents + 1], or of those of queries and those of keys, which are the same."""
    listed: Any = cu_seqlens.tolist()
    if cu_seqlens.dim() == 2 and any(row != listed[0] for row in listed):
        raise UsageError("rows of cu_seqlens differ (queries, keys and all sequences of a batch have the same documents): "
                         "pass one row, or a call for each sequence")
    return list(integers(listed[0] if cu_seqlens.dim() == 2 and listed else listed, "cu_seqlens"))


def _call(handle: Any, which: str, seed: int, **tensors: Tensor | None) -> None:
    with torch.no_grad():
        handle.call(which, {name: view(tensor, name) for name, tensor in tensors.items() if tensor is not None}, seed)


def _agreed(seed: Tensor | None, sharding: Sharding, scores: Sequence[float]) -> int:
    """Rank 0's seed, which counts on all ranks."""
    if seed is None or scores[DROPOUT] == 0:
        return 0
    mine = int(seed)
    if sharding.comm.size == 1:
        return mine
    everyone = sharding.comm.all_gather(mine.to_bytes(8, "little", signed=True), [8] * sharding.comm.size)
    return int.from_bytes(everyone[:8], "little", signed=True)


@_operator
def _forward(q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None, seed: Tensor | None,
             cu_seqlens: Tensor | None, positions: Tensor | None, sharding: Tensor, causal: bool, left: int, right: int,
             first_keys: int, scores: Sequence[float], schedule: str, value_dim: int, max_logit: bool,
             gradients: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The last result is what the backward pass needs to know: the number of the sharding, and the seed of dropout."""
    own = sharding_of(int(sharding))
    own = own if cu_seqlens is None else own.with_documents(_documents(cu_seqlens))
    if positions is not None:
        own.check_positions(positions)
    handle = _handle(q, k, v, sinks, own, causal, left, right, first_keys, scores, schedule, value_dim, max_logit,
                     gradients)
    agreed = _agreed(seed, own, scores)
    o, lse, largest, _ = _new_results(q, v, value_dim, max_logit)
    _call(handle, "forward", agreed % 2**64, q=q, k=k, v=v, sink_logits=sinks, o=o, lse=lse,
          max_logit=largest if max_logit else None)
    return o, lse, largest, torch.tensor((own.number, agreed), device="cpu")


def _new_results(q: Tensor, v: Tensor | None, value_dim: int,
                 max_logit: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, tokens, heads, _ = q.shape
    statistics = torch.float64 if q.dtype == torch.float64 else torch.float32
    values = value_dim if v is None else v.shape[3]
    return (q.new_empty((batch, tokens, heads, values)), q.new_empty((batch, heads, tokens), dtype=statistics),
            q.new_empty((batch, heads if max_logit else 0), dtype=statistics),
            torch.empty(2, dtype=torch.int64, device="cpu"))


@torch.library.register_fake("distattn::forward")
def _(q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None,
      *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _new_results(q, v, *given[-3:-1])


@_operator
def _backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None, o: Tensor, lse: Tensor,
              numbers: Tensor, causal: bool, left: int, right: int, first_keys: int, scores: Sequence[float],
              schedule: str, value_dim: int, max_logit: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The last result is this rank's part of the gradient of sinks."""
    number, seed = numbers.tolist()
    handle = _handle(q, k, v, sinks, sharding_of(number), causal, left, right, first_keys, scores, schedule, value_dim,
                     max_logit, True)
    dq, dk, dv, dsinks = _new_gradients(q, k, v, sinks)
    _call(handle, "backward", seed % 2**64, d_o=d_o, q=q, k=k, v=v, sink_logits=sinks, o=o, lse=lse, dq=dq, dk=dk,
          dv=None if v is None else dv, dsink_logits=None if sinks is None else dsinks)
    return dq, dk, dv, dsinks


def _refuse_second(*_: Any) -> None:
    raise UsageError("a gradient of a gradient of attention is asked for (none is computed): leave out create_graph, or "
                     "choose another attention")


torch.library.register_autograd("distattn::backward", _refuse_second)


def _new_gradients(q: Tensor, k: Tensor, v: Tensor | None,
                   sinks: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, dsinks = (q.new_empty(0) if each is None else each.new_empty(each.shape) for each in (q, k, v, sinks))
    return dq, dk, dv, dsinks


@torch.library.register_fake("distattn::backward")
def _(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None,
      *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _new_gradients(q, k, v, sinks)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    # Of inputs, neither seed, documents, positions and the sharding nor whether to differentiate.
    q, k, v, sinks, _, _, _, _, *options, _ = inputs
    o, lse, _, numbers = output
    ctx.save_for_backward(q, k, v, sinks, o, lse, numbers)
    ctx.options, ctx.inputs, ctx.given = options, len(inputs), [each is not None for each in (q, k, v, sinks)]
    ctx.sharding = None if q.is_meta else _kept(numbers)  # of tensors without numbers there are none
    ctx.set_materialize_grads(False)


def _kept(numbers: Tensor) -> Sharding | None:
    """The sharding itself, so that it stays until the backward pass; None in a graph that is being traced."""
    return None if torch.compiler.is_compiling() or type(numbers) is not Tensor else sharding_of(int(numbers[0]))


def _differentiate(ctx: Any, d_o: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    gradients: tuple[Tensor | None, ...] = (None, None, None, None)
    if d_o is not None:
        gradients = _backward(d_o, *ctx.saved_tensors, *ctx.options)
    return (*(gradient if given else None for gradient, given in zip(gradients, ctx.given)),
            *[None] * (ctx.inputs - 4))


torch.library.register_autograd("distattn::forward", _differentiate, setup_context=_keep_for_backward)


def attention(q: Tensor, k: Tensor, v: Tensor | None, *, sharding: Sharding, causal: bool = False,
              window_size: tuple[int, int] = (-1, -1), cu_seqlens: Tensor | Sequence[int] | None = None,
              first_keys: int = 0, softmax_scale: float | None = None, schedule: str | None = None,
              return_lse: bool = False, return_max_logit: bool = False, positions: Tensor | None = None,
              dropout_seed: int | Tensor | None = None, value_dim: int | None = None, **scores: Any) -> Any:
    """Exact attention of this rank's queries to the keys of all ranks, [batch, tokens, heads, dim] each. A collective.

    Masks and scale mean what they mean in flash-attn, and so do `softcap`, `alibi_slopes` (a list), `dropout_p` and
    `sinks` ([heads], with a gradient). Weights are dropped by rank 0's `dropout_seed`; None: drawn from PyTorch's
    generator. With return_max_logit, the last result is the largest score of each head, [batch, heads], of this rank's
    share. With v None, values are the first `value_dim` numbers of keys, as in MLA with absorbed projections, and the
    gradient of k is that of both. Documents are the sharding's, or for this call `cu_seqlens`: 0, …, seq, the same on
    all ranks. `schedule` is one of the sharding's layout; None: a ring. With return_lse: (o, lse), lse
    [batch, heads, tokens], through which no gradient flows. `positions` that are given are compared with those of this
    rank's tokens.
    """
    if not isinstance(sharding, Sharding):
        raise UsageError(f"sharding is a {type(sharding).__name__} (who owns which tokens): pass a "
                         f"distattn.torch.Sharding")
    if not torch.compiler.is_compiling():
        flag(return_lse, "return_lse")
    sinks = taken_sinks(scores)
    o, lse, max_logit = attend(q, k, v, sinks, sharding.numbered, causal, window_size, cu_seqlens, first_keys,
                               scores_of(softmax_scale=softmax_scale, **scores), schedule, positions, dropout_seed,
                               return_max_logit, value_dim)
    returned = (o, *([lse.detach()] if return_lse else []), *([max_logit.detach()] if return_max_logit else []))
    return returned if len(returned) > 1 else o


def attend(q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None, number: Tensor, causal: bool,
           window_size: tuple[int, int], cu_seqlens: Tensor | Sequence[int] | None, first_keys: int,
           scores: tuple[float, ...], schedule: str | None, positions: Tensor | None,
           dropout_seed: int | Tensor | None = None, max_logit: bool = False,
           value_dim: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """o, lse and max_logit in the sharding of a number; 0 is the one that is current when it is computed."""
    check_values(v, value_dim)
    if not torch.compiler.is_compiling():
        _check_arguments(causal, window_size, first_keys, schedule, max_logit, value_dim, dropout_seed,
                         cu_seqlens, q=q, k=k, v=v, sinks=sinks, positions=positions)
    left, right = window_size
    kind = q.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):  # as PyTorch's own attention does
        q, k, v = (each if each is None or each.dtype == torch.float64 else each.to(torch.get_autocast_dtype(kind))
                   for each in (q, k, v))
    documents = cu_seqlens if cu_seqlens is None or isinstance(cu_seqlens, Tensor) else \
        torch.tensor(integers(cu_seqlens, "cu_seqlens"), device="cpu")
    seed = None
    if scores[DROPOUT] != 0:
        seed = torch.randint(2**62, (1,)) if dropout_seed is None else dropout_seed
        seed = seed if isinstance(seed, Tensor) else torch.tensor([_signed(seed_of(seed))], device="cpu")
    o, lse, largest, _ = _forward(q, k, v, sinks, seed, documents, positions, number, causal, left, right, first_keys,
                                  scores, schedule or "", value_dim or 0, max_logit, torch.is_grad_enabled())
    return o, lse, largest


def _check_arguments(causal: Any, window_size: Any, first_keys: Any, schedule: Any, max_logit: Any, value_dim: Any,
                     dropout_seed: Any, cu_seqlens: Any, **tensors: Any) -> None:
    flag(causal, "causal")
    window_of(window_size)
    integer(first_keys, "first_keys")
    text(schedule or "", "schedule")
    flag(max_logit, "return_max_logit")
    integer(value_dim or 0, "value_dim")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) and (tensor is not None or name in ("q", "k")):
            raise UsageError(f"{name} is a {type(tensor).__name__} (no tensor of PyTorch): pass one")
        if tensor is not None and tensor.is_nested:
            raise UsageError(f"{name} is a nested tensor (not supported): pass a dense one, and documents as cu_seqlens")
    if isinstance(dropout_seed, Tensor) and dropout_seed.numel() != 1:
        raise UsageError(f"dropout_seed has {dropout_seed.numel()} numbers (one counts on all ranks): pass one")
    for name, tensor in {**tensors, "dropout_seed": dropout_seed, "cu_seqlens": cu_seqlens}.items():
        if isinstance(tensor, Tensor) and tensor.is_meta and not tensors["q"].is_meta:
            raise UsageError(f"{name} has no values (it is on the meta device, q is not): pass one that has")
    if isinstance(dropout_seed, Tensor) and (dropout_seed.dtype.is_floating_point or dropout_seed.dtype.is_complex or
                                             dropout_seed.dtype == torch.bool):
        raise UsageError(f"dropout_seed is a {dropout_seed.dtype} (an integer of 64 bits): pass integers")
    _refuse_derivatives(*(tensor for tensor in tensors.values() if tensor is not None))


def _refuse_derivatives(*tensors: Tensor) -> None:
    """Of forward-mode differentiation, which PyTorch would drop without a word, and those of torch.func, which it does
    not compute of operators."""
    if getattr(forward_ad, "_current_level", -1) >= 0 and \
            any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise UsageError("q, k or v has a tangent (forward-mode derivatives are not computed): differentiate backward")
    if any(torch._C._functorch.is_gradtrackingtensor(tensor) for tensor in tensors):
        raise UsageError("torch.func differentiates attention (PyTorch does not do that to operators): call backward() or "
                         "torch.autograd.grad")


def _signed(seed: int) -> int:
    """A seed of 64 bits as a number of a tensor of int64."""
    return seed - 2**64 if seed >= 2**63 else seed


def keep_attention() -> Any:
    """The context_fn of a checkpoint that keeps each attention's (o, lse) and computes everything else again:

    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False, context_fn=distattn.torch.keep_attention)
    """
    contexts: Any = torch.utils.checkpoint.create_selective_checkpoint_contexts
    return contexts([torch.ops.distattn.forward.default])
