"""Options with several values: every combination is a case, what is none is said, and rows name what varies.

usage: lists.py DISTATTN
"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
passed, failed = 0, 0


def expect(condition, what):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def distattn(*arguments, code=0):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == code, f"{' '.join(arguments)} exits {done.returncode}: {done.stderr}")
    return done


def json_of(*arguments):
    done = distattn(*arguments, "--json")
    return json.loads(done.stdout or "[]"), done.stderr


def check_validate(folder):
    """In words of the case: mask, batch x queries/keys, heads/key heads x dimension, type, the rest."""
    band = os.path.join(folder, "m.json")
    with open(band, "w", encoding="utf-8") as file:
        file.write('[{"q": [0, 20], "k": [0, 20], "diff": [0, null]}]')
    common = ("validate", "--schedule", "ring", "--ranks", "2", "--backend", "reference", "--batch", "1-2")
    rows, notes = json_of(*common, "--seq", "20", "--heads", "2-8*2", "--kv-heads", "2,4", "--head-dim", "8,16",
                          "--dtype", "fp32,bf16", "--wire", "fp32,bf16", "--mask", f"full,prefix:8,block-causal:4,{band}")
    cases = [(row["case"], row["pass"]) for row in rows]
    shapes = [(h, kv) for h in (2, 4, 8) for kv in (2, 4) if h % kv == 0]
    expected = {(f"{mask} {batch}x{seq}/{seq} {h}/{kv}x{dim} {dtype}" + (" wire bf16" if wire == "bf16" else ""), one)
                for batch, seq, (h, kv), dim, dtype, wire, mask, one in itertools.product(
                    (1, 2), (20,), shapes, (8, 16), ("fp32", "bf16"), ("fp32", "bf16"),
                    ("full", "prefix:8", "block-causal:4", band), ("forward", "backward"))}
    expect(len(cases) == len(expected) and set(cases) == expected, f"cases are {sorted(set(cases) ^ expected)[:4]} …")
    expect(all(row["ok"] for row in rows), "some are wrong")
    expect(notes.count("2 heads on 4 kv-heads") == 2 * 2 * 2 * 2 * 4, f"what is no problem is not said: {notes[:300]}")


def check_modes():
    rows, _ = json_of("validate", "--schedule", "ring,ulysses", "--ranks", "2", "--backend", "reference", "--seq", "16",
                      "--heads", "2", "--head-dim", "8", "--mode", "overlapped,serial,gathered")
    expect([(row["schedule"], row["mode"]) for row in rows if row["pass"] == "forward"] ==
           [(name, mode) for name in ("ring", "ulysses") for mode in ("overlapped", "serial", "gathered")],
           f"modes are {rows}")
    text = distattn("validate", "--schedule", "ring", "--ranks", "2", "--backend", "reference", "--seq", "16", "--heads", "2",
                    "--head-dim", "8", "--mode", "serial,gathered").stdout
    expect(text.count("ring, serial") == 2 and text.count("ring, gathered") == 2, f"lines do not name the mode: {text}")


def check_rest_is_skipped():
    done = distattn("validate", "--schedule", "ulysses", "--ranks", "1-4", "--backend", "reference", "--heads", "2,3",
                    "--head-dim", "8", "--mask", "causal", "--seq", "12")
    lines = [line for line in done.stdout.splitlines() if "forward" in line]
    expect(len(lines) == 5 and "4 head groups need as many heads, there are 3" in done.stderr, done.stdout + done.stderr)
    none = distattn("validate", "--heads", "7", "--kv-heads", "2,3", "--seq", "12", code=2)
    expect(none.stderr.count("\n") == 1 and "7 heads on 3 kv-heads" in none.stderr and not none.stdout, none.stderr)


def check_large():
    """A case that this machine has no memory for is left out, not wrong; with none left there is nothing to say."""
    common = ("validate", "--schedule", "ring", "--ranks", "2", "--backend", "reference", "--seq", "24", "--head-dim", "16")
    rows, notes = json_of(*common, "--heads", "2,1G")
    expect(len(rows) == 2 and all(row["ok"] for row in rows) and "TiB of memory" in notes, f"{rows} {notes}")
    for why, arguments in (("TiB of memory", ("--heads", "1G")), ("memory", ("--heads", "2", "--memory", "1"))):
        none = distattn(*common, *arguments, "-q", code=2)
        expect("no case is left" in none.stderr and why in none.stderr, f"{arguments} are refused with {none.stderr}")
        expect("choose other values" in none.stderr and none.stderr.count("\n") == 1, none.stderr)


def check_plan():
    arguments = ("plan", "--machine", "dgx-h100x8", "--ranks", "2,4", "--seq", "1K-4K*2", "--heads", "8,3", "--kv-heads", "2",
                 "--head-dim", "64,128", "--dtype", "bf16,fp16", "--mask", "causal,full", "--schedule", "ring")
    rows, notes = json_of(*arguments)
    found = {(row["seq"], row["ranks"], row["head_dim"], row["dtype"], row["mask"]) for row in rows}
    expect(found == set(itertools.product((1024, 2048, 4096), (2, 4), (64, 128), ("bf16", "fp16"), ("causal", "full"))) and
           len(rows) == len(found) and all((row["heads"], row["kv_heads"]) == (8, 2) for row in rows), f"rows of {found}")
    expect("3 heads on 2 kv-heads" in notes, notes)
    head = distattn(*arguments).stdout.splitlines()[0].split()
    expect(head[4:7] == ["dtype", "mask", "head_dim"] and "heads" not in head, f"the table's columns are {head}")


def check_bench():
    arguments = ("bench", "--schedule", "ring", "--ranks", "1,2", "--seq", "32", "--heads", "2", "--head-dim", "8,16,12",
                 "--mask", "causal,full", "--mode", "serial", "--backend", "reference", "-n", "1", "-w", "0")
    rows, notes = json_of(*arguments)
    expect([(row["mask"], row["head_dim"], row["ranks"], row["mode"]) for row in rows] ==
           [(mask, dim, ranks, "serial") for mask in ("causal", "full") for dim in (8, 16) for ranks in (1, 2)],
           f"rows are {rows}")
    expect(notes.count("head-dim is 12") == 2, notes)
    head = [cell.strip() for cell in distattn(*arguments).stdout.splitlines()[0].split("|")]
    expect("mask" in head and "head dim" in head and "heads" not in head and "type" not in head, f"columns are {head}")


with tempfile.TemporaryDirectory() as scratch:
    check_validate(scratch)
    for check in (check_modes, check_rest_is_skipped, check_large, check_plan, check_bench):
        check()
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
