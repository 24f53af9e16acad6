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


def report(*results, outcome="passed", gpus="Stand-in, 1"):
    return json.dumps({"gpus": gpus, "distattn": {"version": "9.9"},
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
    compiles(folder)
    text = (folder / "table.cpp").read_text()
    expect("distattn 9.9 ran on\n// Stand-in, 1\n" in text, "nobody says where it was measured")

    expect(record(folder, report(several, longer)).returncode == 0, "two lengths are refused")
    expect(entries(folder)[0].endswith('"forward 128x128"},'), f"of several lengths only one counts: {entries(folder)}")
    expect(len(entries(folder)) == 2, f"a wrong kernel is a choice: {entries(folder)}")


def compiles(folder):
    run_well(os.environ["CXX"], "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}",
             f"-I{SOURCE}/core/include", folder / "table.cpp")


def partly_wrong(folder):
    """A visit to a GPU in which some kernels are wrong leaves a table of the others."""
    done = record(folder, report(
        [row("forward", "forward 128x128", None, used=True), row("forward", "forward 128x96", 400),
         row("forward", "forward 128x160", 900) | {"ok": False},
         row("gradients", "gradients 128x64", None, used=True), row("gradients", "gradients 128x64 dv after ds", None)],
        outcome="failed"))
    expect(done.returncode == 0 and "step variants failed" in done.stdout, f"what is right is lost: {done.stdout}")
    expect("no kernel of gradients 128/128 full is right" in done.stdout, f"it is not said: {done.stdout}")
    expect(entries(folder) == ['{TilePass::forward, 90, 128, 128, Coverage::full, "forward 128x96"},'],
           f"chosen: {entries(folder)}")

    rates = [row("forward", "forward 128x128", 500, used=True), row("forward", "forward 128x176", 600)]
    expect(record(folder, report(rates, [rates[0]])).returncode == 0, "a kernel that is missing once is refused")
    expect(entries(folder)[0].endswith('"forward 128x128"},'), "a kernel that was not always timed is a choice")


def strange_machines(folder):
    rates = [row("forward", "forward 128x128", 500, used=True), row("forward", "forward 128x176", 600)]
    for gpus in ("GPU\nint nonsense;", "GPU\\", "", "NVIDIA H100 80GB HBM3, 580.65.06, 81559 MiB, 700.00 W " * 8):
        expect(record(folder, report(rates, gpus=gpus)).returncode == 0, f"refused: {gpus}")
        compiles(folder)
        expect(max(map(len, (folder / "table.cpp").read_text().splitlines())) <= 120, f"too long for {gpus}")


def refused(folder):
    before = (folder / "table.cpp").read_text()
    used = row("forward", "forward 128x128", 500, used=True)
    for strange in ({"variant": 'x"}, y'}, {"variant": 7}, {"part": "forward}; y"}, {"gflops": -5}, {"gflops": "fast"},
                    {"gflops": True}, {"gflops": 1e308}, {"gflops": float("nan")}, {"head_dim": "128"}):
        done = record(folder, report([used, row("forward", "forward 128x176", 600) | strange]))
        expect(done.returncode == 1 and "Traceback" not in done.stdout, f"{strange} is taken: {done.stdout}")
    for text, why in ((report([row("forward", "a", 1)], outcome="skipped"), "step variants skipped"),
                      (report([used, row("forward", "b", 600)], gpus={}), "cannot read"),
                      (report([row("backward", "usual", 1, used=True)]), "compares no kernels"),
                      ('{"steps": []}', "no step variants"), ("{", "cannot read"), ("[]", "cannot read")):
        done = record(folder, text)
        expect(done.returncode == 1 and why in done.stdout, f"{text} gives {done.returncode}: {done.stdout}")
    expect(run(SCRIPT, folder / "none", folder / "table.cpp").returncode == 1, "a missing report is taken")
    expect((folder / "table.cpp").read_text() == before, "what was refused has changed the table")


with tempfile.TemporaryDirectory() as name:
    chosen(pathlib.Path(name))
    partly_wrong(pathlib.Path(name))
    strange_machines(pathlib.Path(name))
    refused(pathlib.Path(name))
