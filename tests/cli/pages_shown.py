#!/usr/bin/env python3
"""Pages in a browser: no script error, as many tiles as there are, and what pointing at them says; light and dark.

usage: pages_shown.py DISTATTN [FOLDER for the screenshots]
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

from pages import BIG, HEADS, data_of, own_tiles

DISTATTN = os.path.abspath(sys.argv[1])
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         "--virtual-time-budget=20000", "--window-size=1400,2000"]

# Appended to a copy of a page: points at things as a hand does, and keeps what the page says of them.
POINTING = """<script>
const said = [];
function move(canvas, x, y, type = "mousemove") {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new MouseEvent(type, {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
  said.push(document.getElementById("details").textContent);
}
const marks = document.getElementById("mask-marks");
move(marks, 80, marks.getBoundingClientRect().height - 30);
move(document.querySelector("#strips canvas"), 70, 10);
const line = document.querySelector("#timelines canvas + canvas");
move(line, 60, 30);
document.querySelectorAll("#chips button")[1].click();
said.push(document.getElementById("details").textContent);
const idle = document.querySelector("#ranks th:last-child button");
idle.click();
const order = [...document.querySelectorAll("#ranks tbody tr td:last-child")].map((cell) => parseFloat(cell.textContent));
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
said.push(document.getElementById("details").textContent);
marks.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown"}));
marks.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown"}));
said.push(document.getElementById("details").textContent);
document.getElementById("closer").click();
const pass = document.getElementById("pass");
pass.value = 1;
pass.dispatchEvent(new Event("change"));
document.body.dataset.said = JSON.stringify({said, order, counts: document.getElementById("counts").textContent});
</script>
"""


def browse(folder, page, *flags):
    profile = os.path.join(folder, "profile")
    done = subprocess.run([BROWSER, *FLAGS, f"--user-data-dir={profile}", *flags, page], capture_output=True, timeout=120,
                          env={**os.environ, "HOME": folder})
    errors = [line for line in done.stderr.decode(errors="replace").splitlines() if ":CONSOLE" in line or "Uncaught" in line]
    assert done.returncode == 0 and not errors, (page, done.returncode, errors)
    return done.stdout.decode()


def shown(folder, path, address=""):
    """The attributes of the body, and the document."""
    dom = browse(folder, f"file://{path}{address}", "--dump-dom")
    body = re.search(r"<body([^>]*)>", dom)[1]
    attributes = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', body)}
    assert attributes.get("ready") == "yes" and "error" not in attributes, attributes
    return attributes, dom


def pixels(path):
    """How many kinds of pixels a PNG has, about: rows are compared as they are stored."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(packed)
    return len({raw[i:i + 16] for i in range(0, len(raw), 16)})


def make(folder, name, command, *options):
    path = os.path.join(folder, f"{name}.html")
    done = subprocess.run([DISTATTN, command, *options, "--html", path, "-q"], cwd=folder, capture_output=True, timeout=120)
    assert done.returncode == 0, (options, done.stderr)
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def check_page(folder, name, path, text, pictures):
    one = data_of(text)["schedules"][0]["passes"][0]
    tiles = one["counts"]["tiles"]
    group = len({key for key in own_tiles(one, [0, one["problem"]["seq"]]) if key[0] == 0}) if len(one["queries"]) < 600 else None
    attributes, dom = shown(folder, path)
    assert int(attributes["tiles"]) == tiles, (attributes, tiles)
    if group is not None:
        assert int(attributes["drawn"]) == group, (attributes, group)
    assert f"{tiles:,} tiles" in dom, "the tiles are not counted in words"
    assert int(attributes["spans"]) >= len(one["steps"] if "steps" in one else one["timelines"][0]["busy"])
    for scheme, number in (("light", 1), ("dark", 0)):
        picture = os.path.join(pictures, f"{name}-{scheme}.png")
        browse(folder, f"file://{path}", f"--blink-settings=preferredColorScheme={number}", f"--screenshot={picture}")
        assert pixels(picture) > 500, (name, scheme, pixels(picture))


def pages(folder, pictures):
    """At 4, 32 and 256 ranks, by all three commands."""
    big = ["--machine", "big.json", "--seq", "32K", *HEADS]
    made = [(f"show-{ranks}", "show", "--schedule", "zigzag-ring", "--ranks", str(ranks), *big, *more)
            for ranks, *more in ((4, "--backward"), (32, "--backward", "--cu-seqlens", "0,32768"), (256,))]
    made += [(f"plan-{ranks}", "plan", "--schedule", "ring,usp:2,allgather", "--ranks", str(ranks), *big) for ranks in (4, 32, 256)]
    made += [(f"run-{ranks}", "run", "--random", "--schedule", schedule, "--ranks", str(ranks), "--threads", "1", "--seq",
              "1024", "--heads", "2", "--head-dim", "8", "--backward")
             for ranks, schedule in ((4, "ring"), (32, "zigzag-ring"), (256, "mesh:1x16x16"))]
    for name, command, *options in made:
        path, text = make(folder, name, command, *options)
        check_page(folder, name, path, text, pictures)
        print(name, f"{len(text) / 1e6:.2f} MB", flush=True)


def coarse(folder, _):
    path, text = make(folder, "coarse", "show", "--schedule", "zigzag-ring", "--ranks", "512", "--seq", "64K", *HEADS)
    cells = data_of(text)["schedules"][0]["passes"][0]["cells"]
    drawn = sum(n for row in cells["rows"] for rank, n in zip(row[::2], row[1::2]) if rank >= 0)
    attributes, dom = shown(folder, path, "#rank=7")
    assert int(attributes["drawn"]) == drawn and "rank 7" in dom and "zigzag-ring forward." in dom, (attributes, drawn)


def links(folder, _):
    """Pointing at one thing is told of by the others."""
    path, text = make(folder, "links", "show", "--schedule", "ring", "--ranks", "4", "--seq", "4K", *HEADS, "--backward",
                      "--machine", "big.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", POINTING + "</body>"))
    attributes, _ = shown(folder, path)
    told = json.loads(attributes["said"])
    tile, strip, step, rank, released, moved = told["said"]
    assert tile.startswith("tile q3·k0") and "computed byrank 3 in step" in tile and "kv(g0, 0): rank 0 to 3" in tile, tile
    assert "tokens segment 0: tokens 0 to 1023" in strip and "rank 0" in strip, strip
    assert step.startswith("tile q0·k0") and "It needs no message." in step, step
    assert rank.startswith("rank 1") and "idle" in rank and "sends" in rank, rank
    assert told["order"] == sorted(told["order"]) and len(told["order"]) == 4, told["order"]
    assert released.startswith("Point at something"), released
    assert moved.startswith("tile q1·k0"), moved
    one = data_of(text)["schedules"][0]["passes"][1]
    assert f"{one['counts']['messages']} messages" in told["counts"], told["counts"]


def addresses(folder, _):
    path, _ = make(folder, "addresses", "show", "--schedule", "usp:2", "--ranks", "4", "--seq", "4K", *HEADS, "--backward")
    _, dom = shown(folder, path, "#pass=backward&group=1&tile=2.1")
    assert "tile q2·k1, head group 1" in dom and "dkv(g1, 1)" in dom, "a link leads to a tile"
    for nonsense in ("#rank=99&pass=sideways&group=-3", "#tile=9.9", "#schedule=x&tile=%00"):
        shown(folder, path, nonsense)


def names(folder, _):
    """What names hold is shown, not run."""
    name = "<img src=x onerror=document.body.dataset.error=1>.json"
    with open(os.path.join(folder, name), "w") as file:
        file.write('[{"q":[0,64],"k":[0,64],"diff":[0,null]}]')
    path, _ = make(folder, "names", "show", "--schedule", "ring", "--ranks", "2", "--seq", "64", *HEADS, "--mask", name)
    _, dom = shown(folder, path)
    assert html.escape(name, quote=False) in dom, "the mask's name is not shown"


def odd_problems(folder, _):
    """More queries than keys, nothing visible, fewer tokens than ranks, a window with sinks, layouts that interleave."""
    with open(os.path.join(folder, "nothing.json"), "w") as file:
        file.write("[]")
    for options in (["--seq", "70", "--seq-kv", "33", "--ranks", "4"], ["--seq", "8", "--mask", "nothing.json", "--ranks", "2"],
                    ["--seq", "1", "--ranks", "3"], ["--seq", "9", "--ranks", "1"],
                    ["--seq", "64", "--window", "9,0", "--global-keys", "3", "--ranks", "4"],
                    ["--seq", "61", "--schedule", "striped-ring", "--ranks", "5"], ["--seq", "7", "--ranks", "8"]):
        path, text = make(folder, "odd", "show", "--schedule", "ring", *options, *HEADS, "--backward")
        attributes, _ = shown(folder, path, "#rank=0")
        assert int(attributes["tiles"]) == data_of(text)["schedules"][0]["passes"][0]["counts"]["tiles"], attributes


if BROWSER is None:
    print("SKIPPED: no browser (apt-get install chromium)")
    sys.exit(0)
with tempfile.TemporaryDirectory() as scratch:
    with open(os.path.join(scratch, "big.json"), "w") as described:
        json.dump(BIG, described)
    where = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else scratch
    for check in (links, addresses, names, odd_problems, coarse, pages):
        check(scratch, where)
        print(check.__name__, "fine", flush=True)
