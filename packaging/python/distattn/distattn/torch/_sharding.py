"""Who owns which tokens of a sequence, and tensors that are taken apart and put together by that."""

import dataclasses
import functools
import itertools
import json
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import _capi
from .._attention import Attention, bytes_of, planned_positions
from .._comm import Comm
from .._errors import UsageError
from .._plan import layout as placed_layout
from .._problem import Mask, Problem, Request, integer, integers, layout_text
from ._comm import init

# A schedule of each layout that takes any mask and any number of heads.
SCHEDULES = {"zigzag": "zigzag-ring", "striped": "striped-ring", "block": "ring"}
_numbers = itertools.count(1)
_by_number: "weakref.WeakValueDictionary[int, Sharding]" = weakref.WeakValueDictionary()


CURRENT = torch.tensor(0, device="cpu")  # the number that stands for the sharding that make_current() was given last
_current: "Sharding | None" = None


def make_current(sharding: "Sharding") -> None:
    global _current
    _current = sharding


def sharding_of(number: int) -> "Sharding":
    found = _by_number.get(number) if number else _current
    if found is None and number == 0:
        raise UsageError("distattn has no sharding (register() was given none): call register(sharding=…)")
    if found is None:
        raise UsageError(f"sharding {number} is gone (a graph refers to it): keep the Sharding as long as what uses it")
    return found


@functools.lru_cache(maxsize=64)
def _positions(seq: int, ranks: int, schedule: str, layout: str | None) -> tuple[torch.Tensor, ...]:
    """Of every rank. Neither the mask nor heads nor meshes say who owns a token."""
    problem = Problem.of(seq=seq, heads=1, head_dim=8)
    given = None if layout is None else layout_text({name: part for name, part in json.loads(layout).items()
                                                     if name in ("schema_version", "ranks")}
                                                    | {"segments": _owners(json.loads(layout))})
    request = Request.of(problem, schedule=schedule, layout=given)
    return tuple(torch.from_numpy(planned_positions(problem, request, ranks, rank, _capi.QUERIES))
                 for rank in range(ranks))


def _owners(layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{name: part for name, part in segment.items() if name in ("start", "count", "stride", "owner")}
            for segment in layout.get("segments", [])]


def _same_on_all(comm: Comm, text: str) -> str:
    """What rank 0 has. A collective."""
    mine = text.encode() if comm.rank == 0 else b""
    sizes = comm.all_gather(len(mine).to_bytes(8, "little"), [8] * comm.size)
    size = int.from_bytes(sizes[:8], "little")
    return comm.all_gather(mine, [size] + [0] * (comm.size - 1)).decode()


def _check_tokens(x: Any, dim: int, tokens: int, whose: str, what: str) -> None:
    if not isinstance(x, torch.Tensor):
        raise UsageError(f"a {type(x).__name__} is given (no tensor of PyTorch): pass one")
    if not -x.dim() <= integer(dim, "dim") < x.dim():
        raise UsageError(f"a tensor of {tuple(x.shape)} has no dimension {dim} (tokens lie along it): pass another dim")
    if x.shape[dim] != tokens:
        raise UsageError(f"dimension {dim} of a tensor of {tuple(x.shape)} has {x.shape[dim]} tokens ({whose} {tokens}): "
                         f"pass {what}")


class Sharding:
    """A sequence of `seq` tokens, with or without packed documents, over the ranks of `comm` (None: of init()).

    `positions` are this rank's tokens in the whole sequence, in the order of its tensors: what RoPE and data loaders
    need. Lengths need not be divisible. `layout` is "zigzag", "striped", "striped:B" (blocks of B tokens dealt out in
    turn, so that tokens stay where they are while a sequence grows) or "block", or what distattn.layout() returns, the
    same on all ranks; placed() makes one. Keep a sharding as long as graphs that use it.
    """

    MOST_HANDLES, MOST_DOCUMENTS = 8, 64
    MOST_BYTES = 64 << 20  # of a whole problem's tensors: larger handles of other documents are not kept

    def __init__(self, *, seq: int, comm: Comm | None = None, layout: str | Mapping[str, Any] = "zigzag",
                 cu_seqlens: Sequence[int] | None = None) -> None:
        dealt = isinstance(layout, str) and layout.startswith("striped:")
        if isinstance(layout, str) and not dealt and layout not in SCHEDULES:
            raise UsageError(f"layout is {layout!r} (unknown): choose one of {', '.join(SCHEDULES)}, striped:B, or pass "
                             f"what distattn.layout() returns")
        self.seq, self.layout = integer(seq, "seq"), layout
        self.given = None if isinstance(layout, str) else layout_text(layout)
        self.comm = init() if comm is None else comm
        if not isinstance(self.comm, Comm):
            raise UsageError(f"comm is a {type(comm).__name__} (which ranks there are): pass a distattn.Comm, as of "
                             f"Comm.from_process_group(), or None")
        ring = f"mesh:1x{self.comm.size}x1:{layout}"
        self.schedule = ring if dealt else SCHEDULES[layout] if isinstance(layout, str) else "placed"
        self.cu_seqlens = () if cu_seqlens is None else integers(cu_seqlens, "cu_seqlens")
        if cu_seqlens is not None and (self.cu_seqlens[:1] != (0,) or self.cu_seqlens[-1] != self.seq
                                       or any(b < a for a, b in itertools.pairwise(self.cu_seqlens))):
            raise UsageError(f"cu_seqlens is {cu_seqlens} (documents of {seq} tokens): list 0, …, {seq} in order")
        self.number = next(_numbers)
        self.numbered = torch.tensor(self.number, device="cpu")  # another one is no reason to trace a graph again
        _by_number[self.number] = self
        self.all_positions = _positions(self.seq, self.comm.size, self.schedule, self.given)
        self.positions = self.all_positions[self.comm.rank]
        self._handles: OrderedDict[tuple[Problem, Request], Attention] = OrderedDict()
        self._with_documents: "OrderedDict[tuple[int, ...], Sharding]" = OrderedDict()
        self._first = weakref.ref(self)  # the one that keeps those of other documents, and is not kept by them

    @classmethod
    def placed(cls, *, seq: int, heads: int, head_dim: int, comm: Comm | None = None,
               cu_seqlens: Sequence[int] | None = None, **options: Any) -> "Sharding":
        """In a layout that is made for these documents, heads and the machine: rank 0 makes it, the others get it. The
        options are those of distattn.layout(). A collective."""
        comm = init() if comm is None else comm
        made = json.dumps(placed_layout(seq=seq, heads=heads, head_dim=head_dim, ranks=comm.size, cu_seqlens=cu_seqlens,
                                        **options)) if comm.rank == 0 else ""
        return cls(seq=seq, comm=comm, layout=json.loads(_same_on_all(comm, made)), cu_seqlens=cu_seqlens)

    @property
    def tokens(self) -> int:
        """How many tokens this rank owns."""
        return len(self.positions)

    @property
    def document_positions(self) -> torch.Tensor:
        """Where this rank's tokens stand in their documents, which RoPE of packed documents counts by."""
        if not self.cu_seqlens:
            return self.positions
        starts = torch.tensor(self.cu_seqlens, device="cpu")  # whatever is the default device
        return self.positions - starts[torch.searchsorted(starts, self.positions, right=True) - 1]

    def shard(self, x: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """This rank's part of a tensor that all ranks have whole. A gradient of `x` is that of this rank's part."""
        _check_tokens(x, dim, self.seq, "the whole sequence has", "the whole one")
        return x.index_select(dim, self.positions.to(x.device))

    def unshard(self, x: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """The whole tensor, on every rank, of the parts that the ranks have. A collective. The gradient of a part is
        taken from this rank's gradient of the whole, as for a loss that every rank computes alike."""
        _check_tokens(x, dim, self.tokens, "this rank owns", "this rank's part")
        whole: torch.Tensor = _Unshard.apply(x, self, dim)
        return whole

    def next_tokens(self, tokens: torch.Tensor, dim: int = 1, ignore_index: int = -100) -> torch.Tensor:
        """The labels of the whole sequence, of its tokens; `ignore_index` where a document ends."""
        _check_tokens(tokens, dim, self.seq, "the whole sequence has", "the whole one")
        ends = [end - 1 for end in (self.cu_seqlens or (0, self.seq))[1:] if end > 0]
        return torch.roll(tokens, -1, dim).index_fill(dim, torch.tensor(ends, device=tokens.device), ignore_index)

    def labels(self, tokens: torch.Tensor, dim: int = 1, ignore_index: int = -100) -> torch.Tensor:
        """This rank's next-token labels, of the whole sequence's tokens: also across the borders of shards."""
        return self.shard(self.next_tokens(tokens, dim, ignore_index), dim)

    def with_documents(self, cu_seqlens: Sequence[int]) -> "Sharding":
        """The same with these documents. The last few are kept, and share their handles."""
        listed = integers(cu_seqlens, "cu_seqlens")
        first = self._first() or self
        for known in (self, first):
            if listed and listed == known.cu_seqlens:
                return known
        made = first._with_documents.get(listed)
        if made is None:
            made = Sharding(seq=self.seq, comm=self.comm, layout=self.layout, cu_seqlens=listed)
            made._handles, made._first = self._handles, weakref.ref(first)
            first._with_documents[listed] = made
            if len(first._with_documents) > self.MOST_DOCUMENTS:
                first._with_documents.popitem(last=False)
        return made

    def check_positions(self, positions: torch.Tensor) -> None:
        """Refuses positions that are not those of this rank's tokens, in the sequence or in its documents."""
        rows = positions.reshape(-1, positions.shape[-1] if positions.dim() else 1).cpu()
        if not rows.dtype.is_floating_point and not rows.dtype.is_complex:
            rows = rows.to(torch.int64)  # unsigned ones are not compared with signed ones
        for expected in (self.positions, self.document_positions):
            if rows.shape[1] == len(expected) and bool((rows == expected).all()):
                return
        raise UsageError("positions are not those of this rank's tokens (RoPE would turn them wrongly, and documents that "
                         "they tell of would see each other): pass sharding.document_positions, and cu_seqlens to the "
                         "Sharding")

    def gather(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        rows = x.movedim(dim, 0).contiguous().cpu()
        row_bytes = rows[:1].numel() * rows.element_size() if len(rows) else \
            rows.element_size() * torch.Size(rows.shape[1:]).numel()
        sizes = [len(positions) * row_bytes for positions in self.all_positions]
        gathered = self.comm.all_gather(rows.view(-1).view(torch.uint8).numpy(), sizes)
        flat = torch.frombuffer(gathered, dtype=x.dtype) if gathered else rows.new_empty(0)
        whole = torch.empty((self.seq, *rows.shape[1:]), dtype=x.dtype, device="cpu")
        whole[torch.cat(self.all_positions)] = flat.view(whole.shape)
        return whole.movedim(0, dim).contiguous().to(x.device)

    def handle(self, problem: Problem, request: Request) -> Attention:
        """The handle for a problem, made by all ranks at the same call."""
        if self.given is not None and request.schedule == self.schedule:
            request = dataclasses.replace(request, layout=self.given)
        handle = self._handles.get((problem, request))
        if handle is not None and handle._address is not None:
            self._handles.move_to_end((problem, request))
            return handle
        handle = Attention.of(problem, request, self.comm)
        if not torch.equal(torch.from_numpy(handle.positions), self.positions):
            handle.close()
            raise UsageError(f"schedule {request.schedule} does not keep tokens in layout {self._layout_name} (tensors "
                             f"are sharded so): choose {self.schedule} or another one of that layout")
        self._handles[problem, request] = handle
        self._drop_handles(problem)
        return handle

    def _drop_handles(self, newest: Problem) -> None:
        """The oldest, and large ones of documents that are over: a handle has buffers of several times its tensors. The
        same ones on every rank."""
        kept = self._handles
        for key in [key for key in kept if key[0].mask.cu_seqlens != newest.mask.cu_seqlens
                    and bytes_of(key[0]) > self.MOST_BYTES] + list(kept)[:-self.MOST_HANDLES]:
            if key in kept:
                kept.pop(key).close()

    def mask(self, causal: bool, window_size: tuple[int, int], first_keys: int) -> Mask:
        return Mask(causal, window_size, first_keys, self.cu_seqlens)

    def __copy__(self) -> "Sharding":
        return self  # models hold one, and are copied

    def __deepcopy__(self, _: Any) -> "Sharding":
        return self

    @property
    def _layout_name(self) -> str:
        return self.layout if isinstance(self.layout, str) else "placed"

    def __repr__(self) -> str:
        documents = f", {len(self.cu_seqlens) - 1} documents" if self.cu_seqlens else ""
        return f"Sharding(seq={self.seq}, layout={self._layout_name!r}, rank {self.comm.rank} of {self.comm.size}{documents})"


class _Unshard(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sharding: Sharding, dim: int) -> torch.Tensor:
        ctx.sharding, ctx.dim = sharding, dim
        return sharding.gather(x, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.sharding.shard(gradients[0], ctx.dim), None, None
