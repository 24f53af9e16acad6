#!/usr/bin/env python3
"""The pages of show, plan and run: what they hold against an own count, what they need, and names from outside.

usage: pages.py DISTATTN
"""
import json
import os
import re
import subprocess
import sys
import tempfile

DISTATTN = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
BIG = {"name": "big", "nodes": 32, "ranks_per_node": 8, "near": {"bytes_per_s": 4e11, "latency_s": 5e-6},
       "far": {"bytes_per_s": 5e10, "latency_s": 1e-5, "per": "rank"}, "memory_bytes": 8e10, "cores": 0,
       "flops_per_s": {"bf16": 6e14, "fp32": 4e13}}
HEADS = ["--heads", "8", "--kv-heads", "4", "--head-dim", "64"]
DOCUMENTS = [0, 100, 103, 900, 1800, 2048, 4096]


def page_of(command, *options, folder):
    """The data of a page, and its text."""
    path = os.path.join(folder, "page.html")
    done = subprocess.run([DISTATTN, command, *options, "--html", path], cwd=folder, capture_output=True, timeout=120)
    assert done.returncode == 0, (options, done.returncode, done.stderr)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    os.remove(path)
    return data_of(text), text, done


def data_of(text):
    blocks = re.findall(r'<script type="application/json" id="data">(.*?)</script', text, re.S)
    assert len(blocks) == 1 and text.count("</script") == text.count("<script") == 2, text.count("</script")
    return json.loads(blocks[0])


def segments(flat):
    return [dict(zip(("start", "count", "stride", "owner"), flat[i:i + 4])) for i in range(0, len(flat), 4)]


def positions(segment):
    return [segment["start"] + segment["stride"] * i for i in range(segment["count"])]


def sees_some(queries, keys, documents):
    """Whether a causal query sees one of the keys, all in order; documents: where each begins, and the end."""
    for begin, end in zip(documents, documents[1:]):
        some_q = [q for q in (queries if len(queries) < 5000 else ()) if begin <= q < end]
        some_k = [k for k in keys if begin <= k < end]
        if some_q and some_k and some_k[0] <= some_q[-1]:
            return True
    return False


def visible_pairs(tokens, documents):
    return sum((end - begin) * (end - begin + 1) // 2 for begin, end in zip(documents, documents[1:]) if begin < tokens)


def own_tiles(one, documents):
    """(group, query segment, key segment) of all tiles that see something, by the segments of the page."""
    queries = [positions(each) for each in segments(one["queries"])]
    keys = [positions(each) for each in segments(one["keys"] or one["queries"])]
    return {(g, q, k) for q, some in enumerate(queries) for k, others in enumerate(keys) if sees_some(some, others, documents)
            for g in range(len(one["groups"]))}


def tiles_of(one):
    """The page's tiles, with the rank that computes each, and the pairs of all."""
    queries, keys = segments(one["queries"]), segments(one["keys"] or one["queries"])
    tiles, pairs = {}, 0
    for rank, lanes in enumerate(one["steps"]):
        for _, *numbers in lanes[0]:
            for i, number in enumerate(numbers):
                if number < 0:
                    continue
                row, k = divmod(number, len(keys))
                g, q = divmod(row, len(queries))
                assert (g, q, k) not in tiles, "computed twice"
                tiles[g, q, k] = rank
                partial = i + 1 < len(numbers) and numbers[i + 1] < 0
                pairs += -numbers[i + 1] if partial else queries[q]["count"] * keys[k]["count"]
    return tiles, pairs


def check_pass(one, ranks, documents, tokens):
    assert [each["owner"] for each in segments(one["queries"]) if not 0 <= each["owner"] < ranks] == []
    counts, totals = one["counts"], one["totals"]
    assert all(len(each) == ranks for each in totals.values()), {name: len(each) for name, each in totals.items()}
    tiles, pairs = tiles_of(one)
    assert set(tiles) == own_tiles(one, documents) and len(tiles) == counts["tiles"], (len(tiles), counts)
    assert pairs == visible_pairs(tokens, documents) * len(one["groups"]) == sum(totals["pairs"]), pairs
    assert totals["tiles"] == [list(tiles.values()).count(rank) for rank in range(ranks)]
    check_messages(one, ranks)
    for timeline in one["timelines"]:
        check_timeline(timeline, one)


def check_messages(one, ranks):
    near, far, received, messages, values = [0] * ranks, [0] * ranks, [0] * ranks, 0, 0
    for rank, lanes in enumerate(one["steps"]):
        for lane, sent in ((1, near), (2, far)):
            for _, _, *out in lanes[lane]:
                for to, size, *which in out:
                    sent[rank] += one["sizes"][size]
                    received[to] += one["sizes"][size]
                    messages, values = messages + 1, values + len(which)
    assert (near, far, received) == tuple(one["totals"][name] for name in ("sent_near", "sent_far", "received"))
    assert (messages, values) == (one["counts"]["messages"], one["counts"]["values"])


def check_timeline(timeline, one):
    for rank, lanes in enumerate(timeline["spans"]):
        assert [len(lane) // 2 for lane in lanes] == [len(lane) for lane in one["steps"][rank]]
        busy = sum(length for length in lanes[0][1::2] if length > 0) / 100000
        assert abs(busy - timeline["busy"][rank]) < 0.01, (rank, busy, timeline["busy"][rank])
        assert all(sum(lane) <= 100001 for lane in lanes), rank


def planned(folder, *options):
    done = subprocess.run([DISTATTN, "plan", *options, "--json"], cwd=folder, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_against_plan(page, rows):
    """Counts and predictions are those that `plan --json` prints."""
    for one, row in zip(page["schedules"][0]["passes"], rows):
        assert (one["pass"], one["counts"]["tiles"], one["counts"]["steps"]) == (row["pass"], row["tiles"], row["steps"])
        assert (one["counts"]["values"], one["counts"]["messages"]) == (row["messages"], row["messages_coalesced"])
        sent = [near + far for near, far in zip(one["totals"]["sent_near"], one["totals"]["sent_far"])]
        assert max(sent) == row["bytes_sent_max"] and max(one["totals"]["memory"]) <= row["memory_bytes"]
        predicted = one["timelines"][0]["seconds"]
        assert abs(predicted - row["predicted_s"]) <= 1e-8 * predicted, (predicted, row["predicted_s"])


def of_show(folder):
    cu_seqlens = ["--cu-seqlens", ",".join(map(str, DOCUMENTS))]
    for ranks, schedule in ((4, "zigzag-ring"), (4, "striped-ring"), (32, "mesh:2x4x4:zigzag"), (256, "ring")):
        options = ["--schedule", schedule, "--ranks", str(ranks), "--seq", "4096", *HEADS, *cu_seqlens, "--backward",
                   "--machine", "big.json"]
        page, text, _ = page_of("show", *options, folder=folder)
        assert page["coarser"] == [] and page["table"]["rows"] == [] and len(text) < 8e6, len(text)
        assert [one["pass"] for one in page["schedules"][0]["passes"]] == ["forward", "backward"]
        for one in page["schedules"][0]["passes"]:
            check_pass(one, ranks, DOCUMENTS, 4096)
        check_against_plan(page, planned(folder, *options))


def of_plan(folder):
    options = ["--schedule", "ring,zigzag-ring,usp:2,allgather", "--ranks", "4,8", "--seq", "2048", *HEADS, "--backward",
               "--machine", "big.json", "--routes", "both"]
    page, _, _ = page_of("plan", *options, folder=folder)
    rows = planned(folder, *options)
    heads = [text for text, _ in page["table"]["heads"]]
    assert len(page["table"]["rows"]) == len(rows) and heads[:3] == ["schedule", "pass", "ranks"], heads
    assert len(page["schedules"]) == 8 and {each["ranks"] for each in page["schedules"]} == {4, 8}
    drawn = 0
    for row, line in zip(rows, page["table"]["rows"]):
        cells = dict(zip(heads, line["cells"]))
        assert abs(cells["predicted"][1] - row["predicted_s"]) <= 1e-8 * row["predicted_s"], cells
        if line["schedule"] is None:
            continue
        drawn += 1
        schedule = page["schedules"][line["schedule"]]
        one = next(each for each in schedule["passes"] if each["pass"] == row["pass"])
        assert schedule["ranks"] == row["ranks"] and one["counts"]["tiles"] == row["tiles"]
        assert abs(one["timelines"][0]["seconds"] - row["predicted_s"]) <= 1e-8 * row["predicted_s"], (cells, one["name"])
    assert drawn == 16, drawn
    for schedule in page["schedules"]:
        for one in schedule["passes"]:
            check_pass(one, schedule["ranks"], [0, 2048], 2048)


def of_run(folder):
    for ranks, schedule in ((4, "usp:4"), (32, "usp:4"), (256, "mesh:1x16x16")):
        options = ["--random", "--schedule", schedule, "--ranks", str(ranks), "--threads", "1", "--seq", "1024", "--heads", "4",
                   "--head-dim", "8", "--backward", "-q"]
        page, _, done = page_of("run", *options, folder=folder)
        assert done.stdout, "the report is printed as ever"
        for one in page["schedules"][0]["passes"]:
            assert [each["title"].split(" on ")[0] for each in one["timelines"]] == ["predicted", "measured"]
            check_pass(one, ranks, [0, 1024], 1024)


def large_ones_are_coarse(folder):
    """What would be too large has cells in place of tiles, and the command says so."""
    options = ["--schedule", "zigzag-ring", "--ranks", "512", "--seq", "64K", *HEADS]
    page, text, done = page_of("show", *options, folder=folder)
    one = page["schedules"][0]["passes"][0]
    assert page["coarser"] == ["zigzag-ring forward"] and b"zigzag-ring forward" in done.stderr, done.stderr
    assert "steps" not in one and len(text) < 8e6, len(text)
    cells = one["cells"]
    assert all(sum(row[1::2]) == cells["keys"] for row in cells["rows"]) and len(cells["rows"]) == cells["queries"]
    shown = sum(n for row in cells["rows"] for rank, n in zip(row[::2], row[1::2]) if rank >= 0)
    whole = cells["queries"] * (cells["queries"] + 1) // 2
    assert abs(shown - whole) <= cells["queries"], (shown, whole)
    assert one["counts"]["tiles"] == 1024 * 1025 // 2 == sum(one["totals"]["tiles"])
    assert len({rank for row in cells["rows"] for rank in row[::2]} - {-1}) > 256, "a cell has one of two or three ranks"


def alone(folder):
    """No other file, no network."""
    _, text, _ = page_of("show", "--schedule", "ring", "--ranks", "2", folder=folder)
    assert not re.search(r"https?:|//[a-z]|\bsrc=|@import|url\(|<link|fetch\(|XMLHttp|import\(", re.sub(r"//.*", "", text))
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    assert "innerHTML" not in text and "eval(" not in text


def names_from_outside(folder):
    """A name ends no script, stands for no part of the page, and is what it is for whoever reads the page."""
    os.mkdir(os.path.join(folder, "x<"))
    for name in ("x</script><img src=x onerror=alert(1)>.json", "{{pass.js}}<!--<script>.json", "\u2028'\"&amp;.json"):
        with open(os.path.join(folder, name), "w") as file:
            file.write('[{"q":[0,64],"k":[0,64],"diff":[0,null]}]')
        machine = {**BIG, "name": name}
        with open(os.path.join(folder, "machine.json"), "w") as file:
            json.dump(machine, file)
        for command in ("show", "plan"):
            page, _, _ = page_of(command, "--schedule", "ring", "--ranks", "2", "--seq", "64", *HEADS, "--mask", name,
                                 "--machine", "machine.json", folder=folder)
            one = page["schedules"][0]["passes"][0]
            assert one["problem"]["mask"] == name, one["problem"]
            assert name in page["title"] + one["timelines"][0]["title"], page["title"]
    raw = os.path.join(os.fsencode(folder), b"\xff.json")
    with open(raw, "w") as file:
        file.write('[{"q":[0,64],"k":[0,64],"diff":[0,null]}]')
    page, _, _ = page_of("show", "--ranks", "2", "--schedule", "ring", "--seq", "64", "--mask", raw, folder=folder)
    assert page["schedules"][0]["passes"][0]["problem"]["mask"].endswith("\ufffd.json")


def odd_problems(folder):
    """More queries than keys, nothing visible, one rank, one token; a layout that nobody gave."""
    page, _, _ = page_of("show", "--schedule", "placed", "--seq", "64", "--cu-seqlens", "0,40,64", "--ranks", "2", *HEADS,
                         folder=folder)
    assert page["schedules"][0]["passes"][0]["layout"] == "segments"
    with open(os.path.join(folder, "nothing.json"), "w") as file:
        file.write("[]")
    for options in (["--seq", "70", "--seq-kv", "33", "--ranks", "4"], ["--seq", "8", "--mask", "nothing.json", "--ranks", "2"],
                    ["--seq", "1", "--ranks", "3"], ["--seq", "9", "--ranks", "1"], ["--seq", "64", "--window", "9,0", "--global-keys",
                                                                                    "3", "--ranks", "4"]):
        page, _, _ = page_of("show", "--schedule", "ring", *options, *HEADS, folder=folder)
        one = page["schedules"][0]["passes"][0]
        assert len(tiles_of(one)[0]) == one["counts"]["tiles"], one["counts"]


if __name__ == "__main__":
    for check in (of_show, of_plan, of_run, large_ones_are_coarse, alone, names_from_outside, odd_problems):
        with tempfile.TemporaryDirectory() as scratch:
            with open(os.path.join(scratch, "big.json"), "w") as described:
                json.dump(BIG, described)
            check(scratch)
        print(check.__name__, "fine", flush=True)
