"""What the library is, and what schedules would cost."""

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ._capi import lib, load_what_wheels_brought, text_of
from ._picture import bars
from ._problem import Problem, Request, int32, integer, layout_text, schedules_of, scores_of, text


def info() -> dict[str, Any]:
    """What is built and usable here, and why not: as `distattn info --json`."""
    load_what_wheels_brought()  # it looks for all that there is
    return dict(json.loads(text_of(lib.info_json)))


class Plan(list[dict[str, Any]]):
    """Rows as those of `distattn plan --json`, all with the same fields: pandas.DataFrame(plan) takes them. Notebooks
    show the predicted times."""

    def _repr_svg_(self) -> str:
        return bars([(f"{row['schedule']}, {row['pass']}", row["predicted_s"], row["lower_bound_s"]) for row in self])


def plan(*, seq: int, heads: int, head_dim: int, ranks: int, kv_heads: int | None = None,
         schedule: str | Sequence[str] = "auto", machine: str | None = None, batch: int = 1, seq_kv: int | None = None,
         value_dim: int | None = None, dtype: Any = "float32", backward: bool = False, causal: bool = True,
         window_size: tuple[int, int] = (-1, -1), cu_seqlens: Sequence[int] | None = None,
         softmax_scale: float | None = None, memory_bytes: int = 0, balance_tokens: float | None = None,
         shared_kv: bool = False, bands: Sequence[Sequence[int]] | None = None, wire: Any = None,
         mode: str | None = None, node_size: int = 0, ahead: int = 0, layout: str | Mapping[str, Any] | None = None,
         **scores: Any) -> Plan:
    """What schedules would cost on `ranks` ranks of a machine (a name or file of one; None: this one).

    A row for each schedule and pass. Plans and proves; computes nothing. The mask is causal unless said otherwise, as
    the command's. `balance_tokens` is for "placed", `layout` as Attention's; with shared_kv, values are the first
    `value_dim` numbers of keys.
    """
    problem = Problem.of(seq=seq, heads=heads, head_dim=head_dim, kv_heads=kv_heads, batch=batch, seq_kv=seq_kv,
                         value_dim=value_dim, dtype=dtype, causal=causal, window_size=window_size, cu_seqlens=cu_seqlens,
                         shared_kv=shared_kv, bands=bands, wire=wire, scores=scores_of(softmax_scale=softmax_scale, **scores))
    rows = Plan()
    for name in schedules_of(schedule):
        request = Request.of(problem, schedule=name, backward=backward, memory_bytes=memory_bytes,
                             balance_tokens=balance_tokens, mode=mode, node_size=node_size, ahead=ahead,
                             layout=layout_text(layout))
        planned = _planned(lib.plan_json, problem, request, ranks, machine)
        rows += [{**row, "auto": name == "auto", **_described(problem)} for row in planned]
    return rows


def layout(*, seq: int, heads: int, head_dim: int, ranks: int, kv_heads: int | None = None, machine: str | None = None,
           batch: int = 1, value_dim: int | None = None, dtype: Any = "float32", backward: bool = True,
           causal: bool = True, window_size: tuple[int, int] = (-1, -1), cu_seqlens: Sequence[int] | None = None,
           memory_bytes: int = 0, balance_tokens: float | None = None,
           shared_kv: bool = False) -> dict[str, Any]:
    """Who owns which tokens in the schedule "placed", which is made for this mask and machine (None: this one, so that
    machines may differ). A layout is plain data, and serves any mask of `seq` tokens: see distattn.torch.Sharding."""
    problem = Problem.of(seq=seq, heads=heads, head_dim=head_dim, kv_heads=kv_heads, batch=batch, value_dim=value_dim,
                         dtype=dtype, causal=causal, window_size=window_size, cu_seqlens=cu_seqlens,
                         shared_kv=shared_kv)
    request = Request.of(problem, schedule="placed", backward=backward, memory_bytes=memory_bytes,
                         balance_tokens=balance_tokens)
    return dict(_planned(lib.plan_layout, problem, request, ranks, machine))


def _planned(function: Any, problem: Problem, request: Request, ranks: int, machine: str | None) -> Any:
    named = None if machine is None else text(machine, "machine").encode()
    return json.loads(text_of(function, ctypes.byref(problem.struct()), ctypes.byref(request.struct()),
                              int32(integer(ranks, "ranks")), named))


def _described(problem: Problem) -> dict[str, Any]:
    """What was asked for, in the command's words."""
    words = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    return {"dtype": words[problem.dtype], "wire": words[problem.sent],
            "batch": problem.batch, "seq_kv": problem.seq_kv, "heads": problem.heads, "kv_heads": problem.kv_heads,
            "head_dim": problem.head_dim, "value_dim": problem.value_dim or problem.head_dim,
            "shared_kv": problem.shared_kv}
