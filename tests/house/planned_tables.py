"""The README's tables of schedules on three machines are what `distattn plan` says today.

After a wanted change of schedules or of the simulation: planned_tables.py accept BUILD_FOLDER, and read the difference.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

# Heading, --machine, ranks.
MACHINES = (("4 × 8 GPUs, slow links", "docs/machines/dgx-h100x4-slow.json", 32), ("dgx-h100x8", "dgx-h100x8", 64),
            ("ethernet-h100x64", "ethernet-h100x64", 64))
HEADS = (("MHA", 32), ("GQA 8:1", 4))
PAPERS = (("Ring Attention", "ring"), ("DistFlashAttn", "balanced"), ("BurstAttention", "ring/burst"),
          ("Attention2D", "attention2d"), ("USP", "usp"))


def plan(command, machine, ranks, kv_heads, names):
    """(schedule, whether routed, whether auto chose it) -> seconds of both passes."""
    arguments = ["plan", "--machine", machine, "--ranks", ranks, "--seq", "512K", "--heads", 32, "--kv-heads", kv_heads,
                 "--head-dim", 128, "--dtype", "bf16", "--schedule", names, "--routes", "both", "--backward", "--json"]
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
    return f"{1000 * value:.0f}" if value is not None else "–"


def best(seconds, wanted):
    """The cheapest of the schedules that `wanted` takes, straight or routed."""
    found = [(value, key) for key, value in seconds.items() if not key[2] and wanted(key[0])]
    return min(found) if found else (None, None)


def tables(command):
    setups = [(name, head, plan(command, machine, ranks, kv_heads, "auto,all,ring/burst,zigzag-ring/burst:zigzag"))
              for name, machine, ranks in MACHINES for head, kv_heads in HEADS]
    # Of one rank a node, every message is between nodes: both kinds of routes are the same.
    columns = [(f"{name}, {head}{kind}", seconds, routed) for name, head, seconds in setups
               for kind, routed in ((("", False),) if "ethernet" in name else ((", straight", False), (", routed", True)))]

    schedules = {key[0] for _, seconds, _ in columns for key in seconds if not key[2]}
    # By the second column, then by the next where the schedule does not apply, then by name.
    order = sorted(schedules, key=lambda name: ([seconds.get((name, routed, False), float("inf"))
                                                 for _, seconds, routed in columns[1:]], name))
    by_schedule = table(["ms, both passes"] + [head for head, _, _ in columns],
                        [[f"`{name}`"] + [milliseconds(seconds.get((name, routed, False))) for _, seconds, routed in columns]
                         for name in order])

    choices = []
    for name, head, seconds in setups:
        chosen, key = min((value, key) for key, value in seconds.items() if key[2])
        row = [f"{name}, {head}", f"`{key[0]}`" + (" routed" if key[1] and "ethernet" not in name else ""),
               milliseconds(chosen)]
        for _, paper in PAPERS:
            value, _ = best(seconds, lambda each, paper=paper: each == paper or each.startswith(f"{paper}:"))
            row.append(f"{value / chosen:.2f}×" if value is not None else "–")
        choices.append(row)
    by_machine = table(["", "auto chooses", "ms"] + [paper for paper, _ in PAPERS], choices)
    return {"schedules": by_schedule, "choices": by_machine}


def section(name):
    return re.compile(rf"(<!-- planned: {name} -->\n)(.*?)(<!-- end -->)", re.S)


def written(text, command):
    for name, content in tables(command).items():
        text, count = section(name).subn(lambda match, content=content: f"{match[1]}\n{content}\n{match[3]}", text)
        if count != 1:
            sys.exit(f"README.md has no place for the table of {name}")
    return text


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    README.write_text(written(README.read_text(), pathlib.Path(sys.argv[2]).resolve() / "bin/distattn"))
    sys.exit(0)

from house import BUILD, expect  # pylint: disable=wrong-import-position

text = README.read_text()
expect(written(text, BUILD / "bin/distattn") == text,
       f"README.md's tables are not what distattn plan says: python3 tests/house/planned_tables.py accept {BUILD.name}")
print(f"{sum(line.startswith('|') for line in text.splitlines())} lines of tables")
