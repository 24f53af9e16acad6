#!/usr/bin/env python3
"""Placements on the command line: made, printed, given again, run, and refused with one line.

usage: layout.py DISTATTN
"""
import json
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
DOCUMENTS = ("--seq", "8192", "--cu-seqlens", "0,5000,5100,5900,6000,8192", "--heads", "8", "--kv-heads", "4", "--head-dim",
             "32", "--backward")


def distattn(*arguments, code=0):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"{' '.join(arguments)} exits {done.returncode}: {done.stderr}"
    return done


def owned(layout):
    tokens = [0] * layout["ranks"]
    for segment in layout["segments"]:
        tokens[segment["owner"]] += segment["count"]
    return tokens


def printed(folder):
    """What show prints as a layout makes the same plan again."""
    common = (*DOCUMENTS, "--ranks", "4", "--machine", "dgx-a100x2", "--dtype", "bf16")
    text = distattn("show", *common, "--schedule", "placed", "--format", "layout").stdout
    layout = json.loads(text)
    assert sum(owned(layout)) == 8192 and max(owned(layout)) <= 2059, owned(layout)
    file = os.path.join(folder, "layout.json")
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    assert distattn("show", *common, "--layout", file, "--format", "layout").stdout == text
    made, given = (json.loads(distattn("plan", *common, *how, "--json", "-q").stdout)
                   for how in (("--schedule", "placed"), ("--schedule", "placed", "--layout", file)))
    assert {row.pop("bound") for row in given} == {None} and None not in {row.pop("bound") for row in made}
    assert made == given, (made, given)
    assert all(row["schedule"] == "placed" and 0 < row["lower_bound_s"] <= row["predicted_s"] for row in made), made


def noted(_):
    """plan says how good a placement is, and auto takes it where it is best."""
    done = distattn("plan", "--seq", "256K", "--cu-seqlens", "0,90000,110000,120000,130000,160000,262144", "--heads", "8",
                    "--kv-heads", "4", "--head-dim", "64", "--backward", "--ranks", "16", "--machine", "dgx-a100x2",
                    "--dtype", "bf16", "--schedule", "auto,ring")
    assert "placed (auto)" in done.stdout, done.stdout
    assert "times the lower bound of" in done.stderr and "what binds: " in done.stderr, done.stderr


def balance(_):
    """Tokens are dealt out as evenly as is asked for."""
    for given, most in (("0", 2048), ("10%", 2253), ("0.1", 2253)):
        layout = json.loads(distattn("show", *DOCUMENTS, "--ranks", "4", "--schedule", "placed", "--balance-tokens", given,
                                     "--format", "layout").stdout)
        assert max(owned(layout)) <= most, (given, owned(layout))


def computed(folder):
    """A layout of the caller's is run, and right."""
    segments = [{"start": 0, "count": 30, "owner": 2}, {"start": 30, "count": 1, "owner": 0},
                {"start": 31, "count": 35, "stride": 2, "owner": 1}, {"start": 32, "count": 34, "stride": 2, "owner": 0}]
    file = os.path.join(folder, "own.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"schema_version": 1, "ranks": 3, "segments": segments}, out)
    shape = ("--random", "--seq", "100", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--ranks", "3", "--backward")
    done = distattn("run", *shape, "--layout", file, "--check", "--json", "-q")
    row = json.loads(done.stdout)
    assert row["schedule"] == "placed", row
    distattn("run", *shape, "--schedule", "placed", "--cu-seqlens", "0,7,60,100", "--check", "-q")


def from_programs(folder):
    """What show prints as programs is a layout too: who owns what in them."""
    shape = ("--seq", "100", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--ranks", "3", "--backward")
    programs = distattn("show", *shape, "--schedule", "zigzag-ring", "--format", "json").stdout
    file = os.path.join(folder, "programs.json")
    with open(file, "w", encoding="utf-8") as out:
        out.write(programs)
    layout = json.loads(distattn("show", *shape, "--layout", file, "--format", "layout").stdout)
    assert layout["segments"] == [{key: run[key] for key in ("start", "count", "owner")}
                                  for run in json.loads(programs)[0]["outline"]["sharding"]["queries"]], layout
    distattn("run", "--random", *shape, "--layout", file, "--check", "-q")


def other_masks(folder):
    """A layout that was made for one mask serves others: tokens stay, and every program is right."""
    shape = ("--seq", "600", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--ranks", "4", "--backward")
    file = os.path.join(folder, "first.json")
    with open(file, "w", encoding="utf-8") as out:
        out.write(distattn("show", *shape, "--schedule", "placed", "--cu-seqlens", "0,400,410,600", "--format", "layout").stdout)
    for mask in (("--cu-seqlens", "0,400,410,600", "--window", "50,0"), ("--window", "9,0", "--global-keys", "3"), ("--mask", "full"),
                 ("--mask", "prefix:100"), ("--seq-kv", "600", "--seq", "40")):
        distattn("run", *shape[2 * (mask[0] == "--seq-kv"):], *mask, "--random", "--layout", file, "--check", "-q")


def together(_):
    """Masks that share a layout: rows say how many layers have each, and are ranked by the sum over all."""
    common = (*DOCUMENTS, "--ranks", "4", "--machine", "dgx-a100x2", "--dtype", "bf16", "--mask", "causal", "--mask",
              "window:63*5")
    done = distattn("plan", *common, "--schedule", "auto,zigzag-ring,mesh:1x4x1:chunked", "--json")
    assert "masks on one layout" not in done.stdout and "2 masks on one layout: 1 of causal" in done.stderr, done.stderr
    assert "mesh:1x4x1:chunked on 4 ranks: deals tokens out by the mask" in done.stderr, done.stderr
    rows = json.loads(done.stdout)
    assert [row["layers"] for row in rows] == [1, 5] * 4, rows
    for first, second in zip(rows[::2], rows[1::2]):
        assert first["mask"].startswith("causal") and second["mask"].startswith("window:63"), (first, second)
        assert first["pass"] == second["pass"], (first, second)
        whole = first["predicted_s"] + 5 * second["predicted_s"]
        assert abs(first["all_layers_s"] - whole) < 1e-12 and first["all_layers_s"] == second["all_layers_s"], rows
    sums = [row["all_layers_s"] for row in rows[::2]]
    assert sums[0] <= sums[1] and sums[2] <= sums[3], sums
    alone = json.loads(distattn("plan", *common[:-4], "--mask", "window:63", "--schedule", "ring", "--json").stdout)
    window = json.loads(distattn("plan", *common[:-4], "--window", "63,0", "--schedule", "ring", "--json").stdout)
    for row in (*alone, *window):
        assert row.pop("layers") == 1 and row.pop("all_layers_s") is None, row
        row.pop("mask")
    assert alone == window, (alone, window)
    shape = ("--seq", "61", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--cu-seqlens", "0,30,31,45,61")
    masks = ("--mask", "causal", "--mask", "window:4:3*2", "--mask", "full")
    rows = json.loads(distattn("validate", *shape, *masks, "--ranks", "3,5", "--schedule", "placed,auto,ring", "--backend",
                               "cpu", "--json").stdout)
    assert len(rows) == 2 * 3 * 3 * 2 and all(row["ok"] for row in rows), rows
    rows = json.loads(distattn("bench", *shape, *masks, "--ranks", "2", "--schedule", "placed", "-n", "1", "-w", "0", "-c",
                               "--backward", "--json").stdout)
    assert [row["mask"].split()[0] for row in rows[::2]] == ["causal", "window:4:3", "full"], rows
    assert all(row["ok"] for row in rows), rows


def named(folder):
    """A layout by name: a cache that is dealt out in blocks, in every command."""
    shape = ("--seq", "131", "--heads", "6", "--kv-heads", "3", "--head-dim", "16")
    dealt = ("--layout", "striped:16")
    documents = ("--cu-seqlens", "0,17,50,131")
    for schedule, ranks in (("ring", "3"), ("burst", "4"), ("auto", "3"), ("ulysses", "2"), ("attention2d", "4")):
        for more in ((), ("--window", "20,0"), documents, ("--seq-kv", "300"), ("--dtype", "bf16")):
            done = distattn("run", "--random", *shape, *more, "--ranks", ranks, "--schedule", schedule, *dealt, "--backward",
                            "--check", "--json", "-q")
            row = json.loads(done.stdout)
            assert row["schedule"].startswith("mesh:") and row["schedule"].endswith(":striped:16"), row["schedule"]
    program = json.loads(distattn("show", *shape, "--ranks", "3", "--schedule", "ring", *dealt, "--format", "json").stdout)
    segments = program["outline"]["sharding"]["keys"]
    assert [segment["owner"] for segment in segments] == [block % 3 for block in range(9)], segments
    assert [segment["count"] for segment in segments] == [16] * 8 + [3], segments
    assert program["outline"]["sharding"]["layout"] == {"kind": "striped", "split": 1, "block": 16}
    file = os.path.join(folder, "program.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump(program, out)
    distattn("run", "--random", "--program", file, "--check", "-q")
    rows = json.loads(distattn("validate", *shape, "--ranks", "2,3", "--schedule", "all", *dealt, "--json", "-q").stdout)
    assert all(row["ok"] for row in rows), rows
    names = {row["schedule"] for row in rows}
    assert all(name.endswith("striped:16") for name in names) and "mesh:1x1x3:striped:16" in names, names
    rows = json.loads(distattn("plan", *shape, "--machine", "dgx-h100x8", "--dtype", "bf16", "--ranks", "4", "--schedule",
                               "auto,ring,balanced", *dealt, "--json").stdout)
    assert rows and all(row["schedule"].endswith(":striped:16") for row in rows), rows
    two = ("--mask", "causal", "--mask", "window:9*3")
    rows = json.loads(distattn("bench", *shape, *two, "--ranks", "2", "--schedule", "auto,ring", *dealt, "-n", "1", "-w", "0",
                               "-c", "--backward", "--json", "-q").stdout)
    assert len(rows) == 8 and all(row["ok"] and row["schedule"].endswith(":striped:16") for row in rows), rows
    one = ("--ranks", "2", "--schedule", "ring")
    assert distattn("show", *shape, *one, "--layout", "zigzag").stdout == \
        distattn("show", *shape, "--ranks", "2", "--schedule", "zigzag-ring").stdout
    mix = os.path.join(folder, "mix.json")
    with open(mix, "w", encoding="utf-8") as out:
        out.write('[{"keys": 130, "queries": 3}, {"keys": 7, "queries": 1}]')
    serve = ("bench", "--serving", mix, "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--ranks", "3", "-n", "1")
    [row] = json.loads(distattn(*serve, "--layout", "striped:5", "--page", "16", "--check", "--json").stdout)
    assert row["ok"] and (row["block"], row["page"]) == (5, 16), row
    assert "balanced has a layout of its own" in distattn("plan", *shape, *one[:2], "--schedule", "balanced", *dealt, code=2).stderr
    for more, words in ((("--schedule", "balanced"), "balanced does not go with layout striped:16 on 3 ranks (balanced has a layout"),
                        (("--schedule", "allgather"), "allgather has a layout of its own"),
                        (("--schedule", "placed"), "placed has a layout of its own"),
                        (("--seq", "1M"), "16777216 pairs of blocks are most")):
        done = distattn("show", *shape, "--ranks", "3", "--schedule", "ring", *more, *dealt, code=2)
        assert words in done.stderr and done.stdout == "", (more, done.stderr)
    for bad in ("striped:", "striped:0", "striped:1k", "striped:-4"):
        done = distattn("plan", *shape, *one, "--layout", bad, code=2)
        assert f"layout {bad} (blocks of B tokens" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "give striped:B" in distattn(*serve, "--layout", "zigzag", code=2).stderr


def refused(folder):
    shape = ("--seq", "10", "--heads", "2", "--head-dim", "8", "--ranks", "2")
    good = '{"schema_version":1,"ranks":2,"segments":[{"start":0,"count":6,"owner":1},{"start":6,"count":4,"owner":0}]}'
    file = os.path.join(folder, "bad.json")

    def said(text, *more, code=2):
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
        done = distattn("plan", *shape, "--layout", file, *more, code=code)
        assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    for text, words in ((good.replace('"count":4', '"count":3'), "(9 of 10, each is owned once, position 9 is in none)"),
                        (good.replace('"start":6', '"start":5'), "share a position"),
                        (good.replace('"owner":0', '"owner":2'), "segments[1].owner"),
                        (good.replace('"ranks":2', '"ranks":3'), "3 ranks"),
                        (good.replace('"owner":0', '"owner":0,"colour":1'), "colour"),
                        (good[:40], "not JSON"),
                        (good.replace('"ranks":2', '"ranks":[' + "7," * 500 + "7]"), "ranks is a list and not a number"), ("", "the file is empty"), ("[]", "not an object")):
        assert words in said(text), (text, words)
    assert "keys hold fewer positions than the sequence (10 of 12, each is owned once, position 10 is in none)" in said(good, "--seq-kv", "12")
    assert "10 queries and 8 keys (the layout deals out positions of keys)" in said(good, "--seq-kv", "8")
    unequal = distattn("plan", *shape, "--seq-kv", "12", "--schedule", "placed", code=2).stderr
    assert "10 queries and 12 keys): choose another schedule" in unequal and "balance" not in unequal, unequal
    assert "layout of its own" in said(good, "--schedule", "ring")
    for more in (("--balance", "work"), ("--balance-tokens", "0")):
        assert "only placed deals tokens out" in distattn("plan", *shape, "--schedule", "ring", *more, code=2).stderr
        assert "leave one out" in said(good, *more)
    with open(file, "w", encoding="utf-8") as out:
        out.write(good)
    piped = subprocess.run(f"cat {file} | {BINARY} plan {' '.join(shape)} --layout /dev/stdin", shell=True, timeout=60,
                           capture_output=True, text=True, check=False)
    assert piped.returncode == 0 and "placed" in piped.stdout, piped.stderr
    for value in ("-1", "x", "-0.5%", "%"):
        done = distattn("plan", *shape, "--balance-tokens", value, code=2)
        assert "--balance-tokens" in done.stderr, done.stderr
    assert "none.json" in distattn("plan", *shape, "--layout", os.path.join(folder, "none.json"), code=2).stderr
    assert "has a layout of its own" in distattn("show", *shape, "--schedule", "ring", "--format", "layout", code=2).stderr
    program = os.path.join(folder, "program.json")
    with open(program, "w", encoding="utf-8") as out:
        out.write(distattn("show", *shape, "--schedule", "placed", "--format", "json").stdout)
    assert "--format layout with --program" in distattn("show", "--program", program, "--format", "layout", code=2).stderr


with tempfile.TemporaryDirectory() as scratch:
    for check in (printed, noted, balance, computed, from_programs, other_masks, together, named, refused):
        check(scratch)
        print(check.__name__, "fine")
