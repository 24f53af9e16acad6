"""packaging/record-kernels.py: from what a GPU said to the table that the CUDA device reads, which a compiler takes."""

import json
import os
import pathlib
import tempfile

from house import SOURCE, expect, run, run_well

SCRIPT = SOURCE / "packaging/record-kernels.py"


def row(part, variant, gflops, coverage="full", used=False, head_dim=128):
    return {"kernel": "attend-variants", "pass": "forward" if part == "forward" else "backward", "part": part,
            "coverage": coverage, "head_dim": head_dim, "value_dim": head_dim, "variant": variant, "used": used,
            "gflops": gflops}


def report(*results, outcome="passed"):
    return json.dumps({"gpus": "Stand-in, 1", "distattn": {"version": "9.9"},
                       "steps": [{"step": "variants", "outcome": outcome, "results": results}]})


def record(folder, text):
    (folder / "report.json").write_text(text)
    return run(SCRIPT, folder / "report.json", folder / "table.cpp")


def entries(folder):
    return [line.strip() for line in (folder / "table.cpp").read_text().splitlines() if "{TilePass::" in line]


def chosen(folder):
    several = [row("forward", "forward 128x128", 500, used=True), row("forward", "forward 128x176", 520),
               row("forward", "forward 128x128", 500, "causal", used=True),
               row("forward", "forward 128x176", 504, "causal"),  # no more than chance
               row("gradients", "gradients 128x64", 400, used=True),
               row("gradients", "gradients 128x64 dv after ds", None)]  # wrong, so not timed
    longer = [row("forward", "forward 128x128", 600, used=True), row("forward", "forward 128x176", 500)]
    done = record(folder, report(several[:4]))
    expect(done.returncode == 0 and "2 choices" in done.stdout, f"not recorded: {done.stdout}")
    expect(entries(folder) ==
           ['{TilePass::forward, 90, 128, 128, Coverage::full, "forward 128x176"},',
            '{TilePass::forward, 90, 128, 128, Coverage::partial, "forward 128x128"},'], f"chosen: {entries(folder)}")
    run_well(os.environ["CXX"], "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}",
             f"-I{SOURCE}/core/include", folder / "table.cpp")
    expect("distattn 9.9 ran on\n// Stand-in, 1\n" in (folder / "table.cpp").read_text(), "nobody says where it was measured")

    expect(record(folder, report(several, longer)).returncode == 0, "two lengths are refused")
    expect(entries(folder)[0].endswith('"forward 128x128"},'), f"of several lengths only one counts: {entries(folder)}")
    expect(len(entries(folder)) == 2, f"a wrong kernel is a choice: {entries(folder)}")


def refused(folder):
    before = (folder / "table.cpp").read_text()
    for text, why in ((report([row("forward", "a", 1)], outcome="failed"), "step variants failed"),
                      (report([row("backward", "usual", 1, used=True)]), "compares no kernels"),
                      ('{"steps": []}', "no step variants"), ("{", "cannot read"), ("[]", "cannot read")):
        done = record(folder, text)
        expect(done.returncode == 1 and why in done.stdout, f"{text} gives {done.returncode}: {done.stdout}")
    expect(run(SCRIPT, folder / "none", folder / "table.cpp").returncode == 1, "a missing report is taken")
    expect((folder / "table.cpp").read_text() == before, "what was refused has changed the table")


with tempfile.TemporaryDirectory() as name:
    chosen(pathlib.Path(name))
    refused(pathlib.Path(name))
