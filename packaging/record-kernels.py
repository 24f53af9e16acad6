#!/usr/bin/env python3
"""Writes the table by which the CUDA device chooses among kernels for the same tiles, from what a GPU said of them.

Usage: packaging/record-kernels.py REPORT [TABLE]
  REPORT  report.json of packaging/gpu-check.sh after its step `variants`: kernels compared with float64, then timed
  TABLE   what to write (default: kernels/cuda/attend_choices.cpp); build again to use it

A kernel that runs already keeps its place unless another is more than 1 % faster: less is chance. Where a kernel was
timed at several lengths, the geometric mean of its rates counts. Entries of dimensions that REPORT does not have are
dropped: one table, one GPU, one run.
"""

import collections
import json
import math
import os
import pathlib
import sys

NOT_CHANCE = 1.01
TABLE = pathlib.Path(__file__).parent.parent / "kernels/cuda/attend_choices.cpp"
HOPPER = 90  # no other generation has a choice

TEXT = """#include "kernels/cuda/attend_choices.hpp"

namespace distattn::kernels::cuda {

// Written by packaging/record-kernels.py after distattn %(version)s ran on
// %(gpus)s
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


def rows_of(report):
    """The timed kernels of step `variants`, as `distattn bench` printed them."""
    steps = {step["step"]: step for step in report["steps"]}
    if "variants" not in steps:
        fail("the report has no step variants (it was not run) run packaging/gpu-check.sh variants first")
    if steps["variants"]["outcome"] != "passed":
        fail(f"step variants {steps['variants']['outcome']} (a kernel may be wrong) see its why in the report")
    return [row for result in steps["variants"]["results"] for row in result if row["kernel"] == "attend-variants"]


def rates_by_choice(rows):
    """(part, head_dim, value_dim, coverage) -> kernel -> its rate, and those of them that run already."""
    rates, used = collections.defaultdict(lambda: collections.defaultdict(list)), set()
    for row in rows:
        if row["part"] == row["pass"] == "backward":
            continue  # a backend without a choice
        place = row["part"], row["head_dim"], row["value_dim"], "full" if row["coverage"] == "full" else "partial"
        if row["gflops"] is not None:  # else it was wrong
            rates[place][row["variant"]].append(row["gflops"])
        if row["used"]:
            used.add((*place, row["variant"]))
    return {place: {name: math.prod(some) ** (1 / len(some)) for name, some in kernels.items()}
            for place, kernels in rates.items()}, used


def fastest(place, rates, used):
    """Of the kernels for one place, with an advantage for the one that has it."""
    return max(rates, key=lambda name: rates[name] * (NOT_CHANCE if (*place, name) in used else 1))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    table = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else TABLE
    try:
        report = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
        rates, used = rates_by_choice(rows_of(report))
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"cannot read {sys.argv[1]} ({type(error).__name__}: {error}) give report.json of packaging/gpu-check.sh")
    entries = []
    for place in sorted(rates):
        if len(rates[place]) < 2:
            continue
        part, head_dim, value_dim, coverage = place
        entries.append(f'      {{TilePass::{part}, {HOPPER}, {head_dim}, {value_dim}, Coverage::{coverage}, '
                       f'"{fastest(place, rates[place], used)}"}},')
    if not entries:
        fail("the report compares no kernels (this GPU has no choice) run it on Hopper")
    text = TEXT % {"gpus": report["gpus"], "version": report["distattn"]["version"], "entries": "\n".join(entries)}
    unfinished = table.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, table)
    print(f"{table}: {len(entries)} choices")


if __name__ == "__main__":
    main()
