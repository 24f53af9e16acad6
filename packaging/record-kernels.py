#!/usr/bin/env python3
"""Writes the table by which the CUDA device chooses among kernels for the same tiles, from what a GPU said of them.

Usage: packaging/record-kernels.py REPORT [TABLE]
  REPORT  report.json of packaging/gpu-check.sh after its step `variants`: kernels compared with float64, then timed
  TABLE   what to write (default: kernels/cuda/attend_choices.cpp); build again to use it

A kernel that runs already keeps its place unless another is more than 1 % faster: less is chance. Where a kernel was
timed several times, as at several lengths, the geometric mean of its rates counts. What was wrong, failed, or was timed
less often than others of its place takes none. Entries of dimensions that REPORT does not have are dropped: one table,
one GPU, one run.
"""

import collections
import json
import math
import os
import pathlib
import re
import sys
import textwrap

NOT_CHANCE = 1.01
TABLE = pathlib.Path(__file__).parent.parent / "kernels/cuda/attend_choices.cpp"
HOPPER = 90  # no other generation has a choice
PARTS = ("forward", "query_gradient", "key_gradients", "gradients")  # as TilePass has them

TEXT = """#include "kernels/cuda/attend_choices.hpp"

namespace distattn::kernels::cuda {

%(where)s
std::span<const AttendChoice> attend_choices() {
  static constexpr AttendChoice choices[] = {
%(entries)s
  };
  return choices;
}

}  // namespace distattn::kernels::cuda
"""


def fail(problem):
    sys.exit(f"record-kernels: {problem}")


def warn(problem):
    print(f"record-kernels: {problem}", file=sys.stderr)


def comment(text):
    """The lines of a comment, whatever the text holds: one that ends in a backslash would go on."""
    plain = re.sub(r"[^ -~]|\\", " ", text)
    return "\n".join(f"// {line}" for line in textwrap.wrap(plain, 110) or ["a GPU without a name"])


def rows_of(report):
    """The timed kernels of step `variants`, as `distattn bench` printed them."""
    steps = {step["step"]: step for step in report["steps"]}
    if "variants" not in steps:
        fail("the report has no step variants (it was not run) run packaging/gpu-check.sh variants first")
    step = steps["variants"]
    if step["outcome"] not in ("passed", "failed"):
        fail(f"step variants {step['outcome']} (it measured nothing) see its why in the report")
    if step["outcome"] == "failed":
        warn("step variants failed: only what it found right is recorded; see its why in the report")
    return [row for result in step["results"] for row in result if row["kernel"] == "attend-variants"]


def place_of(row):
    """(part, head_dim, value_dim, coverage) and the kernel's name, which become code."""
    part, variant, dims = row["part"], row["variant"], (row["head_dim"], row["value_dim"])
    if part not in PARTS or not re.fullmatch(r"[\w .-]{1,48}", variant, re.ASCII):
        raise ValueError(f"no kernel is called {variant!r} of {part!r}")
    if any(type(dim) is not int or not 8 <= dim <= 256 for dim in dims):
        raise ValueError(f"no kernel has head dimensions {dims}")
    return (part, *dims, "full" if row["coverage"] == "full" else "partial"), variant


def rate_of(row):
    """In GFLOP/s; None for a kernel that was wrong or failed."""
    rate = row["gflops"]
    if rate is None or row.get("ok") is False:
        return None
    if type(rate) not in (int, float) or not 0 < rate < 1e9:
        raise ValueError(f"{rate!r} GFLOP/s of {row['variant']!r}")
    return rate


def rates_by_choice(rows):
    """place -> kernel -> its rates, none where it was wrong, and the kernels that run already as (place, kernel)."""
    rates, used = collections.defaultdict(lambda: collections.defaultdict(list)), set()
    for row in rows:
        if row["part"] == row["pass"] == "backward":
            continue  # a backend without a choice
        place, variant = place_of(row)
        rate = rate_of(row)
        rates[place][variant] += [] if rate is None else [rate]
        if row["used"]:
            used.add((place, variant))
    return rates, used


def fastest(place, kernels, used):
    """Of the kernels for one place, with an advantage for the one that has it; None where none is right."""
    often = max(map(len, kernels.values()))
    means = {name: math.exp(math.fsum(map(math.log, some)) / often) for name, some in kernels.items()
             if often > 0 and len(some) == often}
    return max(means, key=lambda name: means[name] * (NOT_CHANCE if (place, name) in used else 1), default=None)


def table_of(report):
    """The table as C++, and how many entries it has."""
    rates, used = rates_by_choice(rows_of(report))
    entries = []
    for place in sorted(rates):
        part, head_dim, value_dim, coverage = place
        name = fastest(place, rates[place], used)
        if name is None:
            warn(f"no kernel of {part} {head_dim}/{value_dim} {coverage} is right")
        elif len(rates[place]) > 1 and (sum(map(bool, rates[place].values())) > 1 or (place, name) not in used):
            entries.append(f'      {{TilePass::{part}, {HOPPER}, {head_dim}, {value_dim}, Coverage::{coverage}, '
                           f'"{name}"}},')
    if not entries:
        fail("the report compares no kernels that are right (this GPU has no choice) run it on Hopper")
    where = comment(f"Written by packaging/record-kernels.py after distattn {report['distattn']['version']} ran on")
    return TEXT % {"where": f"{where}\n{comment(report['gpus'])}", "entries": "\n".join(entries)}, len(entries)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    table = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else TABLE
    try:
        text, count = table_of(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        fail(f"cannot read {sys.argv[1]} ({type(error).__name__}: {error}): give report.json of packaging/gpu-check.sh")
    unfinished = table.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, table)
    print(f"{table}: {count} choices")


if __name__ == "__main__":
    main()
