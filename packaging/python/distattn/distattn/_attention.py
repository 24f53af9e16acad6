"""Attention: a handle that is planned once and called any number of times, and a function for one call."""

import ctypes
import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _capi
from ._capi import check, lib, made, text_of
from ._comm import Comm, Handle, run_ranks
from ._errors import Error, UsageError
from ._problem import (Problem, Request, check_values, flag, integer, integers, layout_text, scores_of, seed_of,
                       taken_sinks)
from ._tensors import TYPES, Layout, View, dense_view, finished, new_array, stream_of, view, view_of_new


def planned_positions(problem: Problem, request: Request, ranks: int, rank: int, side: int) -> np.ndarray:
    """Where a rank's tokens stand in the whole sequence."""
    count = ctypes.c_int64()
    arguments = (ctypes.byref(problem.struct()), ctypes.byref(request.struct()), ranks, rank, side)
    check(lib.planned_positions(*arguments, None, ctypes.byref(count)))
    positions = np.empty(count.value, np.int64)
    check(lib.planned_positions(*arguments, positions.ctypes.data, ctypes.byref(count)))
    return positions


class Attention(Handle):
    """One rank's handle for one problem: planned, proved and allocated once, then called any number of times.

    Making one is a collective over the ranks of `comm` (None: this process alone), and so is each call. Sizes are those
    of the whole problem; the tensors of a call are this rank's part, [batch, tokens, heads, dim], of `tokens` tokens
    that stand at `positions`. `layout` says who owns which tokens: what distattn.layout() returned, for
    schedule="placed", or "striped:B" or another name, for every schedule on a mesh of ranks. With sink_logits, calls
    take `sinks`; with max_logit, forward() also returns the largest score of each head, of this rank's share. With
    shared_kv, values are the first `value_dim` numbers of keys, and v is None. `bands` are a whole mask, as tree_mask()
    makes them; `wire` is the type in which partial results and gradients are sent.
    """

    _free = staticmethod(lib.attention_free)

    def __init__(self, *, seq: int, heads: int, head_dim: int, seq_kv: int | None = None, kv_heads: int | None = None,
                 value_dim: int | None = None, batch: int = 1, dtype: Any = "float32", comm: Comm | None = None,
                 causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                 cu_seqlens: Sequence[int] | None = None, first_keys: int = 0,
                 bands: Sequence[Sequence[int]] | None = None, softmax_scale: float | None = None,
                 schedule: str = "auto", layout: str | Mapping[str, Any] | None = None, backward: bool = False,
                 backend: str | None = None, threads: int = 0, deterministic: bool = False, machine: str | None = None,
                 memory_bytes: int = 0, cuda_stream: int = 0, sink_logits: bool = False, max_logit: bool = False,
                 shared_kv: bool = False, wire: Any = None, mode: str | None = None, node_size: int = 0, ahead: int = 0,
                 **scores: Any) -> None:
        problem = Problem.of(seq=seq, heads=heads, head_dim=head_dim, seq_kv=seq_kv, kv_heads=kv_heads,
                             value_dim=value_dim, batch=batch, dtype=dtype,
                             scores=scores_of(softmax_scale=softmax_scale, **scores), sink_logits=sink_logits,
                             max_logit=max_logit, shared_kv=shared_kv, wire=wire, causal=causal,
                             window_size=window_size, cu_seqlens=cu_seqlens, first_keys=first_keys, bands=bands)
        request = Request.of(problem, schedule=schedule, layout=layout_text(layout), backward=backward, backend=backend,
                             threads=threads, deterministic=deterministic, machine=machine, memory_bytes=memory_bytes,
                             cuda_stream=cuda_stream, mode=mode, node_size=node_size, ahead=ahead)
        self._make(problem, request, comm)

    @classmethod
    def of(cls, problem: Problem, request: Request, comm: Comm | None = None) -> "Attention":
        made_one = cls.__new__(cls)
        made_one._make(problem, request, comm)
        return made_one

    def _make(self, problem: Problem, request: Request, comm: Comm | None) -> None:
        self.problem, self.request = problem, request
        self._comm = Comm.alone() if comm is None else comm
        if not isinstance(self._comm, Comm):
            raise UsageError(f"comm is a {type(comm).__name__} (which ranks there are): pass a distattn.Comm, or None")
        self._lock = threading.RLock()  # one pass at a time, and none while the handle is given back
        super().__init__(made(lib.attention_create, ctypes.byref(problem.struct()), ctypes.byref(request.struct()),
                              self._comm.address))
        self._comm.users.add(self)
        self.tokens = int(lib.attention_tokens(self.address, _capi.QUERIES))
        self.key_tokens = int(lib.attention_tokens(self.address, _capi.KEYS))
        self.calls = {"forward": 0, "backward": 0}
        # On a stream of the caller's, what follows there waits for the pass; the host does not.
        self._functions: dict[str, Any] = {"forward": lib.forward, "backward": lib.backward}
        if request.cuda_stream:
            self._functions = {"forward": lambda *call: lib.forward_async(*call, None, None),
                               "backward": lambda *call: lib.backward_async(*call, None, None)}
        # What the last call was given: the structs of tensors that lie alike are used again.
        self._tensors: dict[str, tuple[_capi.Tensors, dict[str, tuple[Layout, _capi.DLTensor]]]] = {
            which: (_capi.Tensors(), {}) for which in self._functions}

    @property
    def positions(self) -> np.ndarray:
        """Where this rank's queries stand in the whole sequence, in the order of its tensors."""
        return self._positions(_capi.QUERIES, self.tokens)

    @property
    def key_positions(self) -> np.ndarray:
        return self._positions(_capi.KEYS, self.key_tokens)

    def programs(self, which: str = "forward") -> dict[str, Any]:
        """The programs of all ranks for a pass, as `distattn show --format json` writes them."""
        if which not in self._functions:
            raise UsageError(f"which is {which!r} (no pass): choose one of {', '.join(self._functions)}")
        return dict(json.loads(text_of(lib.schedule_json, self.address, list(self._functions).index(which))))

    def _positions(self, side: int, tokens: int) -> np.ndarray:
        positions = np.empty(tokens, np.int64)
        check(lib.attention_positions(self.address, side, positions.ctypes.data))
        return positions

    def forward(self, q: Any, k: Any, v: Any, sinks: Any = None, *, dropout_seed: int = 0) -> tuple[Any, ...]:
        """o, as q but for values' dimension, and lse, [batch, heads, tokens] in float32 (float64 for float64), and with
        max_logit that, [batch, heads]. The seed is the same in both passes and on all ranks."""
        views = self._views(q=q, k=k, v=v) | self._sinks(sinks)
        results = results_for(q, views["q"].layout, self.problem.value_dim or self.problem.head_dim,
                              self.problem.max_logit)
        self.call("forward", {**views, **{name: view_of_new(array) for name, array in results.items()}},
                  seed_of(dropout_seed))
        return tuple(finished(array, q) for array in results.values())

    def backward(self, d_o: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, sinks: Any = None, *,
                 dropout_seed: int = 0) -> tuple[Any, ...]:
        """dq, dk and dv, from what forward() read and returned, and with sinks this rank's part of their gradient. With
        shared_kv, dk is the gradient of keys and of the values in them, and dv None."""
        views = self._views(d_o=d_o, q=q, k=k, v=v, o=o) | {"lse": view(lse, "lse")} | self._sinks(sinks)
        likes = {"dq": (q, views["q"]), "dk": (k, views["k"])}
        if v is not None:
            likes["dv"] = v, views["v"]
        if sinks is not None:
            likes["dsink_logits"] = sinks, views["sink_logits"]
        made_ones = {name: new_array(like, seen.shape, seen.dtype, seen.layout.device)
                     for name, (like, seen) in likes.items()}
        self.call("backward", {**views, **{name: view_of_new(array) for name, array in made_ones.items()}},
                  seed_of(dropout_seed))
        gradients = [finished(array, likes[name][0]) for name, array in made_ones.items()]
        if v is None:
            gradients.insert(2, None)
        return tuple(gradients)

    def _sinks(self, sinks: Any) -> dict[str, View]:
        if (sinks is not None) != self.problem.sink_logits:
            raise UsageError("sinks are given to a handle without sink_logits (it was planned without): make it with them"
                             if sinks is not None else
                             "no sinks are given to a handle with sink_logits (its rows have one more term): pass them")
        return {} if sinks is None else {"sink_logits": view(sinks, "sinks")}

    def _views(self, **arrays: Any) -> dict[str, View]:
        if "v" in arrays and (arrays["v"] is None) != self.problem.shared_kv:
            raise UsageError("v is given to a handle with shared_kv (its values lie in keys): pass None"
                             if self.problem.shared_kv else
                             "no v is given to a handle without shared_kv (values do not lie in keys): pass it")
        views = {name: view(array, name) for name, array in arrays.items() if name != "v" or array is not None}
        for name, each in views.items():
            check_tensor(each.layout, name, self.problem.dtype)
            if not each.layout.on_host and self.request.cuda_stream == 0:
                raise UsageError(f"{name} lies in CUDA memory (the handle knows no stream on which it was written): make "
                                 f"the handle with cuda_stream, 1 for the default stream")
        return views

    def call(self, which: str, views: dict[str, View], dropout_seed: int = 0) -> None:
        """One pass over tensors that lie where the views say."""
        with self._lock:
            tensors, slots = self._tensors[which]
            for name, each in views.items():
                slot = slots.get(name)
                if slot is None or slot[0] is not each.layout:
                    slot = slots[name] = each.layout, each.layout.struct()
                    setattr(tensors, name, ctypes.pointer(slot[1]))
                slot[1].data = each.address
            tensors.dropout_seed = dropout_seed
            check(self._functions[which](self.address, tensors))
            self.calls[which] += 1

    def close(self) -> None:
        """Gives it back, when a pass that another thread has under way is over. A second call does nothing."""
        if self._address is not None:  # a child process may have the lock as a thread of its parent's held it
            with self._lock:
                super().close()

    def __repr__(self) -> str:
        return f"Attention({self.problem}, {self.request}, {self._comm})"


def check_tensor(layout: Layout, name: str, dtype: str) -> None:
    if layout.dtype != dtype:
        raise UsageError(f"{name} is {layout.dtype}, not {dtype} (one attention has one dtype): convert it")
    if len(layout.shape) not in (3, 4):
        raise UsageError(f"{name} has {len(layout.shape)} dimensions (shape): pass [batch, seq, heads, dim] or [seq, "
                         f"heads, dim]")


def results_for(like: Any, q: Layout, value_dim: int, max_logit: bool = False) -> dict[str, Any]:
    """o, lse and max_logit, to be written."""
    *batch, tokens, heads, _ = q.shape
    statistics = "float64" if q.dtype == "float64" else "float32"
    results = {"o": new_array(like, (*batch, tokens, heads, value_dim), q.dtype, q.device),
               "lse": new_array(like, (*batch, heads, tokens), statistics, q.device)}
    if max_logit:
        results["max_logit"] = new_array(like, (*batch, heads), statistics, q.device)
    return results


def attention(q: Any, k: Any, v: Any, *, ranks: int = 1, schedule: str = "auto", causal: bool = False,
              window_size: tuple[int, int] = (-1, -1), cu_seqlens: Sequence[int] | None = None,
              softmax_scale: float | None = None, return_lse: bool = False, return_max_logit: bool = False,
              backend: str | None = None, threads: int = 0, dropout_seed: int = 0, value_dim: int | None = None,
              **scores: Any) -> Any:
    """Exact attention of q [batch, seq, heads, dim] to k and v [batch, seq_kv, kv_heads, dim], or without batch,
    sharded over `ranks` threads of this process.

    Arrays of NumPy, PyTorch, or any with DLPack, float64 (which the reference backend computes), float32, float16 or
    bfloat16; the result is an array of the same kind. With fewer queries than keys, queries stand at the end. Masks and
    scale mean what they mean in flash-attn, and so do `softcap`, `alibi_slopes` (a list), `dropout_p` and `sinks`
    ([heads]); `cu_seqlens`: 0, …, seq_kv of packed documents. With v None, values are the first `value_dim` numbers of
    keys, as in MLA with absorbed projections. Returns o, then with return_lse lse [batch, heads, seq],
    then with return_max_logit the largest score of each head, [batch, heads]. Computes no gradients: distattn.torch does.
    """
    sinks = taken_sinks(scores) if scores else None
    check_values(v, value_dim)
    views = {"q": view(q, "q"), "k": view(k, "k")} | ({} if v is None else {"v": view(v, "v")})
    documents = None if cu_seqlens is None else integers(cu_seqlens, "cu_seqlens")
    values = value_dim if v is None else views["v"].layout
    asked = (views["q"].layout, views["k"].layout, values, causal, integers(window_size, "window_size"), documents,
             scores_of(softmax_scale=softmax_scale, **scores), sinks is not None, return_max_logit, schedule,
             backend, threads, stream_of(q, views["q"].layout))
    try:
        problem, request = _asked(*asked)
    except TypeError:  # an option that cannot be looked up
        problem, request = _asked.__wrapped__(*asked)
    results = results_for(q, views["q"].layout, problem.value_dim, problem.max_logit)
    if sinks is not None:
        views["sink_logits"] = view(sinks, "sinks")
    for name, array in results.items():
        views[name] = view_of_new(array)
    seed = seed_of(dropout_seed)
    if integer(ranks, "ranks") == 1:
        _call_alone(problem, request, views, seed)
    else:
        _call_ranks(problem, request, ranks, views, seed)
    if not flag(return_lse, "return_lse"):
        del results["lse"]
    finished_ones = tuple(finished(array, q) for array in results.values())
    return finished_ones if len(finished_ones) > 1 else finished_ones[0]


@functools.lru_cache(maxsize=64, typed=True)  # 1.0 is no flag, though it is equal to True
def _asked(q: Layout, k: Layout, v: Layout | Any, causal: Any, window_size: tuple[int, ...],
           documents: tuple[int, ...] | None, scores: tuple[float, ...], sink_logits: bool, max_logit: Any,
           schedule: Any, backend: Any, threads: Any, cuda_stream: int) -> tuple[Problem, Request]:
    for name, layout in (("q", q), ("k", k), ("v", v)):
        if isinstance(layout, Layout):
            check_tensor(layout, name, q.dtype)
    if k.shape[:-3] != q.shape[:-3]:
        raise UsageError(f"k is {_sizes(k)} and q {_sizes(q)} (they have one batch): pass as many sequences of both")
    if isinstance(v, Layout) and v.shape[:-1] != k.shape[:-1]:
        raise UsageError(f"v is {_sizes(v)} and k {_sizes(k)} (each key has a value): pass as many of both")
    problem = Problem.of(seq=q.shape[-3], heads=q.shape[-2], head_dim=q.shape[-1], seq_kv=k.shape[-3],
                         kv_heads=k.shape[-2], value_dim=v.shape[-1] if isinstance(v, Layout) else v,
                         shared_kv=not isinstance(v, Layout), batch=q.shape[0] if len(q.shape) == 4 else 1,
                         dtype=q.dtype, scores=scores, sink_logits=sink_logits, max_logit=max_logit, causal=causal,
                         window_size=window_size, cu_seqlens=documents)
    return problem, Request.of(problem, schedule=schedule, backend=backend, threads=threads, cuda_stream=cuda_stream)


def _sizes(layout: Layout) -> str:
    return "x".join(map(str, layout.shape))


class _Kept:
    """The handles of the last small problems: to plan one takes longer than to compute it."""

    MOST, MOST_BYTES = 8, 64 << 20

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[Problem, Request], Attention] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, problem: Problem, request: Request) -> Attention:
        """It is the caller's alone until give()."""
        with self._lock:
            kept = self._handles.pop((problem, request), None)
        return kept if kept is not None and kept._address is not None else Attention.of(problem, request)

    def give(self, handle: Attention) -> None:
        if bytes_of(handle.problem) > self.MOST_BYTES:
            handle.close()
            return
        with self._lock:
            self._handles[handle.problem, handle.request] = handle
            dropped = self._handles.popitem(last=False)[1] if len(self._handles) > self.MOST else None
        if dropped is not None:
            dropped.close()


_kept = _Kept()


def bytes_of(problem: Problem) -> int:
    """Of q, k and v of all ranks."""
    elements = problem.batch * (problem.seq_q * problem.heads + 2 * problem.seq_kv * problem.kv_heads) * problem.head_dim
    return elements * TYPES[problem.dtype][1] // 8


def _call_alone(problem: Problem, request: Request, views: dict[str, View], dropout_seed: int) -> None:
    handle = _kept.take(problem, request)
    try:
        handle.call("forward", views, dropout_seed)
    except Error as error:
        if not isinstance(error, UsageError):
            handle.close()
            raise
        _kept.give(handle)
        raise
    _kept.give(handle)


def _call_ranks(problem: Problem, request: Request, ranks: int, views: dict[str, View], dropout_seed: int) -> None:
    """Each rank takes its tokens out of the whole tensors and puts its results into them."""
    if not all(each.layout.on_host for each in views.values()):
        raise UsageError("tensors are in CUDA memory (ranks that are threads share the host's): pass ranks=1, or start a "
                         "process for each GPU")
    whole = {name: each.bits() for name, each in views.items() if name not in ("sink_logits", "max_logit")}
    sinks = {name: views[name] for name in ("sink_logits",) if name in views}
    largest: list[np.ndarray] = []  # of each rank's share

    def body(comm: Comm) -> None:
        handle = Attention.of(problem, request, comm)
        queries = handle.positions - (problem.seq_kv - problem.seq_q)  # rows of q, which stands at the end
        keys = handle.key_positions
        own = {name: whole[name].take(queries if name == "q" else keys, -3) for name in {*whole} & {*"qkv"}}
        own["o"] = np.empty((*own["q"].shape[:-1], whole["o"].shape[-1]), whole["o"].dtype)
        own["lse"] = np.empty((*whole["lse"].shape[:-1], len(queries)), whole["lse"].dtype)
        if problem.max_logit:
            own["max_logit"] = np.empty(views["max_logit"].shape, views["max_logit"].dtype)
            largest.append(own["max_logit"])
        handle.call("forward", {name: dense_view(part, views[name].dtype) for name, part in own.items()} | sinks,
                    dropout_seed)
        whole["o"][..., queries, :, :] = own["o"]
        whole["lse"][..., queries] = own["lse"]

    run_ranks(ranks, body)
    if problem.max_logit:
        views["max_logit"].bits().view(views["max_logit"].dtype)[...] = np.max(largest, axis=0)
