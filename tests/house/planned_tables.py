"""The documents' tables of schedules on three machines are what `distattn plan` says today.

After a wanted change of schedules or of the simulation: planned_tables.py accept BUILD_FOLDER, and read the difference.
With the argument "one", what the tables say of the first machine alone, which takes a fifth of the time.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Heading and name of its table, --machine, ranks, kinds of routes: of one rank a node, every message is between nodes.
BOTH = ((", straight", False), (", routed", True))
MACHINES = (("dgx-h100x4-slow", "docs/machines/dgx-h100x4-slow.json", 32, BOTH), ("dgx-h100x8", "dgx-h100x8", 64, BOTH),
            ("ethernet-h100x64", "ethernet-h100x64", 64, (("", False),)))
HEADS = (("MHA", 32), ("GQA 8:1", 4))
NAMED = "auto,ring,balanced,ring/burst,attention2d,usp:2,usp:4,usp:8"  # of PAPERS, with auto
CORPORA = ("pile", "prolong64k", "prolong512k")
PAPERS = (("Ring Attention", "ring"), ("DistFlashAttn", "balanced"), ("BurstAttention", "ring/burst"),
          ("Attention2D", "attention2d"), ("USP", "usp"))


def plan(command, machine, ranks, kv_heads, names, *mask):
    """(schedule, whether routed, whether auto chose it) -> seconds of both passes."""
    arguments = ["plan", "--machine", machine, "--ranks", ranks, "--seq", "512K", "--heads", 32, "--kv-heads", kv_heads,
                 "--head-dim", 128, "--dtype", "bf16", "--schedule", names, "--routes", "both", "--backward", "--json", *mask]
    output = subprocess.run([command, *map(str, arguments)], cwd=ROOT, check=True, text=True, capture_output=True).stdout
    seconds = {}
    for row in json.loads(output):
        key = (row["schedule"], row["node_size"] is not None, row["auto"])
        seconds[key] = seconds.get(key, 0) + row["predicted_s"]
    return seconds


def table(heads, rows):
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milliseconds(value):
    return f"{1000 * value:.{0 if value > 0.1 else 1}f}" if value is not None else "–"


def best(seconds, wanted):
    """The cheapest of the schedules that `wanted` takes, straight or routed."""
    found = [(value, key) for key, value in seconds.items() if not key[2] and wanted(key[0])]
    return min(found) if found else (None, None)


def by_schedule(setups, routes):
    """All schedules on one machine, by the last column and then by those before it."""
    columns = [(head + kind, seconds, routed) for head, seconds in setups for kind, routed in routes]
    schedules = {key[0] for _, seconds, _ in columns for key in seconds if not key[2]}
    order = sorted(schedules, key=lambda name: ([seconds.get((name, routed, False), float("inf"))
                                                 for _, seconds, routed in reversed(columns)], name))
    return table(["ms, both passes"] + [head for head, _, _ in columns],
                 [[f"`{name}`"] + [milliseconds(seconds.get((name, routed, False))) for _, seconds, routed in columns]
                  for name in order])


def choice(heading, seconds, routes):
    """What auto chose, and how much longer the papers' own schedules take."""
    chosen, key = min((value, key) for key, value in seconds.items() if key[2])
    row = [heading, f"`{key[0]}`" + (" routed" if key[1] and routes is BOTH else ""), milliseconds(chosen)]
    for _, paper in PAPERS:
        value, _ = best(seconds, lambda each, paper=paper: each == paper or each.startswith(f"{paper}:"))
        row.append(f"{value / chosen:.2f}×" if value is not None else "–")
    return row


def tables(command, machines=MACHINES):
    """document -> name of a table -> the table."""
    choices, details = [], {}
    for name, machine, ranks, routes in machines:
        setups = [(head, plan(command, machine, ranks, kv_heads, "auto,all,ring/burst,zigzag-ring/burst:zigzag"))
                  for head, kv_heads in HEADS]
        details[name] = by_schedule(setups, routes)
        choices += [choice(f"{name}, {head}", seconds, routes) for head, seconds in setups]
    packings = [choice(f"{name}, {corpus}", plan(command, machine, ranks, 8, NAMED, "--documents", corpus),
                       routes) for name, machine, ranks, routes in machines for corpus in CORPORA]
    heads = ["", "auto chooses", "ms"] + [paper for paper, _ in PAPERS]
    return {"docs/schedules.md": {"choices": table(heads, choices), "packings": table(heads, packings), **details}}


def section(name):
    return re.compile(rf"(<!-- planned: {name} -->\n)(.*?)(<!-- end -->)", re.S)


def written(command):
    """document -> its text with today's tables."""
    texts = {}
    for document, contents in tables(command).items():
        texts[document] = (ROOT / document).read_text()
        for name, content in contents.items():
            texts[document], count = section(name).subn(
                lambda match, content=content: f"{match[1]}\n{content}\n{match[3]}", texts[document])
            if count != 1:
                sys.exit(f"{document} has no place for the table of {name}")
    return texts


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    for document, text in written(pathlib.Path(sys.argv[2]).resolve() / "bin/distattn").items():
        (ROOT / document).write_text(text)
    sys.exit(0)

from house import BUILD, expect  # pylint: disable=wrong-import-position

lines = 0
if sys.argv[1:] == ["one"]:
    for document, contents in tables(BUILD / "bin/distattn", MACHINES[:1]).items():
        text = (ROOT / document).read_text()
        for name, content in contents.items():
            missing = set(content.splitlines()) - set(section(name).search(text)[2].splitlines())
            expect(not missing, f"{document}'s table of {name} lacks what distattn plan says: {missing}")
            lines += len(content.splitlines())
else:
    for document, text in written(BUILD / "bin/distattn").items():
        expect((ROOT / document).read_text() == text,
               f"{document}'s tables are not what distattn plan says: "
               f"python3 tests/house/planned_tables.py accept {BUILD.name}")
        lines += sum(line.startswith("|") for line in text.splitlines())
print(f"{lines} lines of tables")
