"""What is to be computed and how, as plain values that can be compared, and as the C API's structs."""

import ctypes
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _capi
from ._errors import UsageError
from ._tensors import DTYPES, dtype_name


def integer(value: Any, name: str) -> int:
    """ctypes would cut larger ones off without a word."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is {value!r} (no integer): pass one") from None
    if not -2**63 <= number < 2**63:
        raise UsageError(f"{name} is {number} (more than 64 bits hold): pass less")
    return number


def check_values(v: Any, value_dim: Any) -> None:
    """Values have an array of their own, or are the first `value_dim` numbers of keys."""
    if v is None and not value_dim:
        raise UsageError("v is None (nothing says where values are): pass v, or value_dim if they are the beginning of keys")
    if v is not None and value_dim is not None:
        raise UsageError("v and value_dim are given (the latter is of values in keys): pass one of them")
    if v is None and integer(value_dim, "value_dim") < 1:
        raise UsageError(f"value_dim is {value_dim} (numbers of a value): pass 1 or more")


def seed_of(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError:
        seed = -1
    if isinstance(value, bool) or not 0 <= seed < 2**64:
        raise UsageError(f"dropout_seed is {value!r} (an integer of 64 bits): pass 0 or more, and less than 2**64")
    return seed


def text(value: Any, name: str) -> str:
    if not isinstance(value, str) or "\0" in value or not _is_utf8(value):
        raise UsageError(f"{name} is {value!r} (no text): pass a str")
    return value


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, int, np.bool_)) or value not in (True, False):
        raise UsageError(f"{name} is {value!r} (neither True nor False): pass one")
    return bool(value)


def integers(values: Any, name: str) -> tuple[int, ...]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise UsageError(f"{name} is {values!r} (a list of integers): pass one")
    return tuple(integer(value, f"an entry of {name}") for value in listed)


def window_of(window_size: Any) -> tuple[int, int]:
    window = integers(window_size, "window_size")
    if len(window) != 2:
        raise UsageError(f"window_size is {window_size!r} (it has two sides): pass (left, right), -1 for unlimited")
    return window[0], window[1]


def tree_mask(nodes: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """The bands of a mask in which a token sees its node up to itself and all nodes above, for `bands`, and each token's
    position, which is the number of tokens that it sees besides itself.

    A node is (number of tokens, index of the node above among those before it; -1: a root).
    """
    if not isinstance(nodes, Iterable):
        raise UsageError(f"nodes is {nodes!r} (a list of nodes): pass one")
    listed = [integers(node, "a node") for node in nodes]
    if any(len(node) != 2 for node in listed):
        raise UsageError("a node does not have two numbers (length, parent): pass them")
    given = (_capi.TreeNode * len(listed))(*(_capi.TreeNode(*node) for node in listed))
    count = ctypes.c_size_t()
    _capi.check(_capi.lib.tree_mask(given, len(listed), None, ctypes.byref(count), None))
    bands = (_capi.Band * count.value)()
    positions = np.empty(sum(length for length, _ in listed), np.int64)
    _capi.check(_capi.lib.tree_mask(given, len(listed), bands, ctypes.byref(count), positions.ctypes.data))
    return [(band.q0, band.q1, band.k0, band.k1, band.lo, band.hi) for band in bands], positions


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees. Lengths of windows as in flash-attn: -1 is unlimited."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    first_keys: int = 0
    cu_seqlens: tuple[int, ...] = ()
    bands: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(causal: Any = False, window_size: Any = (-1, -1), cu_seqlens: Any = None, first_keys: Any = 0,
           bands: Any = None) -> "Mask":
        window = window_of(window_size)
        documents = () if cu_seqlens is None else integers(cu_seqlens, "cu_seqlens")
        if cu_seqlens is not None and not documents:
            raise UsageError("cu_seqlens has no entry (it lists 0, …, seq): pass them, or None")
        if bands is not None and not isinstance(bands, Iterable):
            raise UsageError(f"bands is {bands!r} (a list of bands): pass one")
        listed = () if bands is None else tuple(integers(band, "a band") for band in bands)
        if bands is not None and not listed:
            raise UsageError("bands has no entry (no pair is visible): pass them, or None")
        if any(len(band) != 6 for band in listed):
            raise UsageError("a band does not have six numbers (q0, q1, k0, k1, lo, hi): pass them")
        return Mask(flag(causal, "causal"), window, integer(first_keys, "first_keys"), documents, listed)


# Keywords that make a weight of a product, and their members of distattn_problem, in which 0 is as usual.
SCORES = {"softmax_scale": "scale", "softcap": "softcap", "dropout_p": "dropout"}
DROPOUT = list(SCORES).index("dropout_p")
# Keywords of a tensor of sink logits, as flash-attn, its third version and transformers call it. One may be given.
SINKS = ("sinks", "s_aux", "learnable_sink")
# Keywords that other libraries know. They may be given if they change nothing.
NOT_COMPUTED = ("qv", "q_descale", "k_descale", "v_descale")


def is_score(keyword: str) -> bool:
    return keyword in SCORES or keyword in NOT_COMPUTED or keyword == "alibi_slopes"


def taken_sinks(given: dict[str, Any]) -> Any:
    """Takes the sink logits, or None, out of a call's keywords."""
    named = {name: given.pop(name) for name in SINKS if name in given}
    tensors = [value for value in named.values() if value is not None]
    if len(tensors) > 1:
        raise UsageError(f"{' and '.join(named)} are given (they mean the same): pass one of them")
    return tensors[0] if tensors else None


def scores_of(**given: Any) -> tuple[float, ...]:
    """The numbers of SCORES, and the slopes of linear biases if there are any. Refuses by its name what is not computed,
    and, as a call does, what is not known."""
    for name, value in given.items():
        if name in NOT_COMPUTED and not (value is None or (isinstance(value, (int, float)) and value == 0)):
            raise UsageError(f"{name} is given (the library does not compute with it): leave it out")
        if not is_score(name):
            raise TypeError(f"unexpected keyword argument {name!r}: leave it out")
    return (*(_score(name, given.get(name)) for name in SCORES), *_slopes(given.get("alibi_slopes")))


def _score(name: str, value: Any) -> float:
    if value is None:
        return 0.0
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or (name == "softmax_scale" and value == 0):
        raise UsageError(f"{name} is {value!r} (a number, or None for what is usual): pass one")
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{name} is {value} (more than a float holds): pass less") from None


def _slopes(values: Any) -> tuple[float, ...]:
    if values is None:
        return ()
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, (list, tuple)) or not listed or not all(isinstance(each, (int, float)) for each in listed):
        raise UsageError(f"alibi_slopes is {values!r} (a number for each query head): pass a list of them")
    return tuple(float(each) for each in listed)


@dataclass(frozen=True)
class Problem:
    """One exact attention; shapes are those of the whole sequence."""

    batch: int
    seq_q: int
    seq_kv: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dtype: str
    scores: tuple[float, ...]  # as scores_of() lists them
    mask: Mask
    sink_logits: bool = False
    max_logit: bool = False
    shared_kv: bool = False
    wire: str = ""  # none: float64 for that, otherwise float32

    @property
    def sent(self) -> str:
        """The type in which partial results and gradients are sent."""
        return self.wire or ("float64" if self.dtype == "float64" else "float32")

    @property
    def drops(self) -> bool:
        return self.scores[DROPOUT] != 0

    @staticmethod
    def of(*, seq: Any, heads: Any, head_dim: Any, seq_kv: Any = None, kv_heads: Any = None, value_dim: Any = None,
           batch: Any = 1, dtype: Any = "float32", scores: tuple[float, ...] | None = None,
           sink_logits: Any = False, max_logit: Any = False, shared_kv: Any = False, wire: Any = None,
           **mask: Any) -> "Problem":
        queries = integer(seq, "seq")
        query_heads = integer(heads, "heads")
        return Problem(integer(batch, "batch"), queries, queries if seq_kv is None else integer(seq_kv, "seq_kv"),
                       query_heads, query_heads if kv_heads is None else integer(kv_heads, "kv_heads"),
                       integer(head_dim, "head_dim"), 0 if value_dim is None else integer(value_dim, "value_dim"),
                       dtype_name(dtype), scores_of() if scores is None else scores, Mask.of(**mask),
                       flag(sink_logits, "sink_logits"), flag(max_logit, "max_logit"),
                       flag(shared_kv, "shared_kv"), "" if wire is None else dtype_name(wire, "wire"))

    def struct(self) -> _capi.Problem:
        """Keeps the lists that it points to."""
        documents = (ctypes.c_int64 * len(self.mask.cu_seqlens))(*self.mask.cu_seqlens)
        bands = (_capi.Band * len(self.mask.bands))(*(_capi.Band(*band) for band in self.mask.bands))
        slopes = (ctypes.c_double * len(self.scores[len(SCORES):]))(*self.scores[len(SCORES):])
        problem = _capi.Problem(batch=self.batch, seq_q=self.seq_q, seq_kv=self.seq_kv, heads=int32(self.heads),
                                kv_heads=int32(self.kv_heads), head_dim=int32(self.head_dim),
                                value_dim=int32(self.value_dim), dtype=DTYPES[self.dtype],
                                wire=DTYPES[self.sent],
                                causal=self.mask.causal, window_left=self.mask.window[0],
                                window_right=self.mask.window[1], sinks=self.mask.first_keys,
                                sink_logits=self.sink_logits, max_logit=self.max_logit, shared_kv=self.shared_kv,
                                **dict(zip(SCORES.values(), self.scores)))
        if self.mask.cu_seqlens:
            problem.cu_seqlens, problem.cu_seqlens_count = documents, len(documents)
        if self.mask.bands:
            problem.bands, problem.bands_count = bands, len(bands)
        if slopes:
            problem.alibi_slopes, problem.alibi_slopes_count = slopes, len(slopes)
        return problem


def int32(value: int) -> int:
    """ctypes would cut it off without a word."""
    if not -2**31 <= value < 2**31:
        raise UsageError(f"{value} ranks, threads, heads or dimensions (more than the library counts): pass fewer")
    return value


# By their numbers in distattn.h. None: the schedule's own.
MODES = (None, "overlapped", "serial", "gathered")


@dataclass(frozen=True)
class Request:
    """How it is computed."""

    schedule: str = "auto"
    backward: bool = False
    backend: str | None = None
    threads: int = 0
    deterministic: bool = False
    machine: str | None = None
    memory_bytes: int = 0
    cuda_stream: int = 0
    balance_tokens: float | None = None
    layout: str | None = None
    mode: str | None = None
    node_size: int = 0
    ahead: int = 0

    @staticmethod
    def of(problem: Problem, **given: Any) -> "Request":
        """Of a caller's keywords. float64 is what the reference backend alone computes."""
        request = Request(**given)
        for name in ("schedule", "backend", "machine", "layout"):
            if name == "schedule" or getattr(request, name) is not None:
                text(getattr(request, name), name)
        integer(request.threads, "threads")
        integer(request.memory_bytes, "memory_bytes")
        balance = request.balance_tokens
        if balance is not None and (isinstance(balance, bool) or not isinstance(balance, (int, float, np.floating))):
            raise UsageError(f"balance_tokens is {balance!r} (a number, or None for what is usual): pass one")
        int32(integer(request.node_size, "node_size")), int32(integer(request.ahead, "ahead"))
        if request.mode not in MODES:
            raise UsageError(f"mode is {request.mode!r} (unknown): choose one of {', '.join(filter(None, MODES))}, or None")
        if problem.dtype == "float64" and request.backend is None:
            return Request(**{**given, "backend": "reference"})
        return request

    def struct(self) -> _capi.Options:
        return _capi.Options(schedule=self.schedule.encode(), backward=self.backward, backend=_bytes(self.backend),
                             threads=int32(self.threads), deterministic=self.deterministic,
                             machine=_bytes(self.machine), memory_bytes=self.memory_bytes,
                             cuda_stream=self.cuda_stream or None,
                             balance_tokens=-1.0 if self.balance_tokens is None else float(self.balance_tokens),
                             layout=_bytes(self.layout), mode=MODES.index(self.mode), node_size=self.node_size,
                             ahead=self.ahead)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def layout_text(layout: str | Mapping[str, Any] | None) -> str | None:
    """Who owns which tokens, as the library takes it, of the same or of what distattn.layout() returns."""
    if layout is None or isinstance(layout, str):
        return layout
    if not isinstance(layout, Mapping):
        raise UsageError(f"layout is a {type(layout).__name__} (a dict, or its JSON): pass what distattn.layout() returns")
    return json.dumps(layout)


def schedules_of(schedule: str | Sequence[str]) -> list[str]:
    """The schedules of "auto,ring" or ["auto", "ring"]."""
    if isinstance(schedule, str):
        return [text(name.strip(), "schedule") for name in schedule.split(",")]
    if not isinstance(schedule, Iterable):
        raise UsageError(f"schedule is {schedule!r} (no name, and no list of them): pass one")
    return [text(name, "schedule") for name in schedule]
