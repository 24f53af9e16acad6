"""The pictures of docs/packing.md: one packing as mask, layout and timeline, in a fixed shape and placed.

After a wanted change of schedules or of the simulation: packing_pictures.py accept BUILD_FOLDER, and look at them.
"""

import html
import json
import pathlib
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
RANKS = 8
PROBLEM = ["--machine", "dgx-h100x8", "--ranks", RANKS, "--seq", "512K", "--heads", 32, "--kv-heads", 8, "--head-dim", 128,
           "--dtype", "bf16", "--documents", "prolong512k"]
PICTURES = (("packing-before.svg", "zigzag-ring", "Zigzag ring"), ("packing-after.svg", "placed", "Placed"))
# Told apart also where colours are seen poorly: light and dark take turns.
COLOURS = ("#3b6ea8", "#e0a030", "#4f9d69", "#c8553d", "#7a5ba6", "#8fc1d4", "#8c6d3f", "#d988a8")
SIDE, LEFT, TOP, STRIP, LANE, WIDTH = 420, 96, 60, 18, 15, 900


def distattn(command, *arguments):
    return json.loads(subprocess.run([command, *map(str, arguments)], check=True, capture_output=True, text=True).stdout)


def tiles(program):
    """(query segment, key segment) -> how many head groups each rank computes of it."""
    found = {}
    for rank, of_rank in enumerate(program["ranks"]):
        value = [buffer["value"] for buffer in of_rank["buffers"]]
        for step in of_rank["steps"]:
            for op in step["ops"]:
                if op["op"] != "attend":
                    continue
                for key in op["keys"]:
                    tile = value[op["query"]]["segment"], value[key["key_value"]]["segment"]
                    counts = found.setdefault(tile, {})
                    counts[rank] = counts.get(rank, 0) + 1
    return found


def rectangle(x, y, width, height, colour, tip):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.4):.1f}" height="{max(height, 0.4):.1f}" '
            f'fill="{colour}"><title>{html.escape(tip)}</title></rect>')


def text(x, y, words, size=13, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{html.escape(words)}</text>'


def mask(program):
    """Each live tile in the colours of its ranks, one next to the other where head groups go to several."""
    segments = program["outline"]["sharding"]["queries"]
    scale = SIDE / program["outline"]["sharding"]["problem"]["seq_q"]
    drawn = []
    for (query, key), counts in sorted(tiles(program).items()):
        rows, columns = segments[query], segments[key]
        x, width = LEFT + columns["start"] * scale, columns["count"] * scale / sum(counts.values())
        for rank, count in sorted(counts.items()):
            drawn.append(rectangle(x, TOP + rows["start"] * scale, width * count, rows["count"] * scale,
                                   COLOURS[rank], f"rank {rank}: {rows['count']} x {columns['count']} tokens"))
            x += width * count
    ends = program["outline"]["sharding"]["problem"]["mask"]["documents"]
    triangles = " ".join(f"M{LEFT + begin * scale:.1f} {TOP + begin * scale:.1f}V{TOP + end * scale:.1f}"
                         f"H{LEFT + end * scale:.1f}Z" for begin, end in zip(ends, ends[1:]))
    return [rectangle(LEFT, TOP, SIDE, SIDE, "#f4f4f2", "pairs that do not see each other"),
            '<g opacity="0.2">', *drawn, "</g>", f'<clipPath id="seen"><path d="{triangles}"/></clipPath>',
            '<g clip-path="url(#seen)">', *drawn, "</g>"]


def strip(program):
    problem = program["outline"]["sharding"]["problem"]
    scale = SIDE / problem["seq_q"]
    y = TOP + SIDE + 12
    drawn = [text(LEFT - 8, y + 13, "owners", anchor="end")]
    for segment in program["outline"]["sharding"]["queries"]:
        drawn.append(rectangle(LEFT + segment["start"] * scale, y, segment["count"] * scale, STRIP,
                               COLOURS[segment["owner"]], f"rank {segment['owner']}: {segment['count']} tokens"))
    return drawn


def timeline(events, longest_us):
    """Computing and waiting for messages, rank by rank, on one scale for all pictures."""
    left, top = LEFT + SIDE + 60, TOP + 24
    width = WIDTH - left - 20
    drawn = []
    for rank in range(RANKS):
        y = top + rank * 2.6 * LANE
        drawn.append(text(left - 6, y + LANE, str(rank), anchor="end"))
        drawn.append(rectangle(left, y, width, 2 * LANE, "#f4f4f2", f"rank {rank}"))
    for event in events:
        if event["ph"] != "X" or event["dur"] <= 0:
            continue
        y = top + event["pid"] * 2.6 * LANE
        compute = event["tid"] == 0
        drawn.append(rectangle(left + event["ts"] / longest_us * width, y if compute else y + 1.4 * LANE,
                               event["dur"] / longest_us * width, 1.4 * LANE if compute else 0.6 * LANE,
                               COLOURS[event["pid"]] if compute else "#777",
                               f"rank {event['pid']}, {'computes' if compute else 'exchanges'} {event['dur']:.0f} us"))
    return drawn


def picture(title, program, events, longest_us):
    finished = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    height = TOP + SIDE + 12 + STRIP + 40
    body = [text(LEFT, 28, f"{title}: {finished / 1000:.2f} ms forward, predicted", 17),
            text(LEFT, 48, "queries down, keys to the right; pale: what is not seen of the tiles", 12),
            text(LEFT + SIDE + 60, 68, "above: computing; below: exchanging messages", 12),
            *mask(program), *strip(program), *timeline(events, longest_us)]
    for rank in range(RANKS):
        x = LEFT + 50 * rank
        body += [rectangle(x, height - 22, 12, 12, COLOURS[rank], f"rank {rank}"), text(x + 16, height - 11, str(rank))]
    body.append(text(LEFT - 8, height - 11, "ranks", anchor="end"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            f'fill="#222">\n<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n")


def written(build):
    """name -> picture."""
    shown = {}
    for name, schedule, _ in PICTURES:
        arguments = ["show", *PROBLEM, "--schedule", schedule, "-q", "--format"]
        events = distattn(build / "bin/distattn", *arguments, "trace")["traceEvents"]
        shown[name] = distattn(build / "bin/distattn", *arguments, "json"), events
    longest = max(event["ts"] + event["dur"] for _, events in shown.values() for event in events if event["ph"] == "X")
    return {name: picture(title, *shown[name], longest) for name, _, title in PICTURES}


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    for name, svg in written(pathlib.Path(sys.argv[2]).resolve()).items():
        (DOCS / name).write_text(svg, encoding="utf-8")
    sys.exit(0)

from house import BUILD, expect  # pylint: disable=wrong-import-position

for name, svg in written(BUILD).items():
    expect((DOCS / name).exists() and (DOCS / name).read_text(encoding="utf-8") == svg,
           f"docs/{name} is not what is drawn today: python3 tests/house/packing_pictures.py accept {BUILD.name}")
    print(f"docs/{name}: {len(svg)} characters")
