#!/usr/bin/env python3
"""Placements next to how other systems deal out packed documents, all predicted by one simulation.

placement_rivals.py build/bin/distattn [SEEDS]            the three corpora, as placements.py has them
placement_rivals.py build/bin/distattn --published FILE   MagiAttention's benchmark, whose histogram of document lengths
                                                          (doc_length_distribution.csv of its repository) is FILE

by area   chunks of 2048 tokens, as many for each rank, the heaviest to the rank with fewest pairs so far: how
          MagiAttention deals them out. Queries stay, keys come.
zigzag    every document in 2 P pieces, two for each rank: how Megatron and TransformerEngine deal them out. Their
          padding is left out, and documents below 4096 tokens stay whole, which favours it.
rows      every document on as many ranks as its share of all pairs needs, a power of two, inside a node where they fit;
          there in zigzag; keys come: how FlexSP, ByteScale and Zeppelin give documents degrees. Tokens are not balanced.
"""
import csv
import heapq
import json
import math
import os
import random
import subprocess
import sys
import tempfile

DISTATTN = os.path.abspath(sys.argv[1])
SLOW = os.path.join(os.path.dirname(__file__), "../../docs/machines/dgx-h100x4-slow.json")
SETTINGS = [("dgx-h100x8", 8), ("dgx-h100x8", 32), ("dgx-h100x8", 64), (SLOW, 32), ("ethernet-h100x64", 8),
            ("ethernet-h100x64", 32), ("ethernet-h100x64", 64)]
CORPORA = ("pile", "prolong512k", "prolong64k")
TOKENS = 512 * 1024
CHUNK, SHORT = 2048, 4096


def planned(setting, *more):
    """Seconds forward and backward, for (ends of documents, ranks, machine, query heads, key heads): of messages that go
    straight or through nodes, whichever is faster."""
    ends, ranks, machine, heads, kv_heads = setting
    done = subprocess.run([DISTATTN, "plan", "--seq", str(ends[-1]), "--heads", str(heads), "--kv-heads", str(kv_heads),
                           "--head-dim", "128", "--dtype", "bf16", "--backward", "--machine", machine, "--ranks",
                           str(ranks), "--cu-seqlens", ",".join(map(str, ends)), "--routes", "both", "--json", *more],
                          capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    return [min(row["predicted_s"] for row in rows if row["pass"] == each) for each in ("forward", "backward")]


def drawn(corpus, seed):
    """Where documents end, as --documents draws them."""
    done = subprocess.run([DISTATTN, "show", "--seq", str(TOKENS), "--heads", "1", "--head-dim", "8", "--documents",
                           corpus, "--seed", str(seed), "--ranks", "1", "--schedule", "ring", "--format", "json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["outline"]["sharding"]["problem"]["mask"]["documents"]


def dealt(deal, setting):
    """As planned(), for a way to deal tokens out: the faster of both orders of steps, for each pass."""
    ends, ranks = setting[:2]
    segments = deal(ends, ranks)
    best = [math.inf, math.inf]
    for staging in ("together", "by_distance"):
        layout = {"schema_version": 1, "ranks": ranks, "segments": segments,
                  **{name: {"staging": staging} for name in ("forward", "backward")}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(layout, file)
            file.flush()
            best = list(map(min, best, planned(setting, "--schedule", "placed", "--layout", file.name)))
    return best


def joined(pieces):
    """Segments of (start, end, owner), neighbours of one owner as one."""
    segments = []
    for start, end, owner in sorted(pieces):
        if segments and segments[-1]["owner"] == owner and segments[-1]["start"] + segments[-1]["count"] == start:
            segments[-1]["count"] += end - start
        elif end > start:
            segments.append({"start": start, "count": end - start, "owner": owner})
    return segments


def by_area(ends, ranks):
    tokens = ends[-1]
    begins = range(0, tokens, CHUNK)
    area = dict.fromkeys(begins, 0)
    for begin, end in zip(ends, ends[1:]):
        for chunk in range(begin // CHUNK * CHUNK, end, CHUNK):
            first, last = max(begin, chunk) - begin, min(end, chunk + CHUNK) - begin
            area[chunk] += (last * (last + 1) - first * (first + 1)) // 2
    room = dict.fromkeys(range(ranks), -(-len(begins) // ranks))
    heap = [(0, rank) for rank in range(ranks)]
    pieces = []
    for chunk in sorted(begins, key=lambda chunk: (-area[chunk], chunk)):
        load, rank = heapq.heappop(heap)
        pieces.append((chunk, min(tokens, chunk + CHUNK), rank))
        room[rank] -= 1
        if room[rank]:
            heapq.heappush(heap, (load + area[chunk], rank))
    return joined(pieces)


def zigzag(ends, ranks):
    pieces, held = [], [0] * ranks
    for begin, end in zip(ends, ends[1:]):
        if end - begin < SHORT:
            rank = held.index(min(held))
            pieces.append((begin, end, rank))
            held[rank] += end - begin
            continue
        for piece in range(2 * ranks):
            first, last = (begin + (end - begin) * p // (2 * ranks) for p in (piece, piece + 1))
            rank = min(piece, 2 * ranks - 1 - piece)
            pieces.append((first, last, rank))
            held[rank] += last - first
    return joined(pieces)


def rows(ends, ranks):
    """Heaviest first, each to the neighbours that are least loaded; loads are pairs."""
    documents = sorted(zip(ends, ends[1:]), key=lambda d: (d[0] - d[1], d[0]))
    pairs = {d: (d[1] - d[0]) ** 2 / 2 for d in documents}
    share = sum(pairs.values()) / ranks
    loads, pieces = [0.0] * ranks, []
    for begin, end in documents:
        degree = 1
        while degree * share < pairs[begin, end] and 2 * degree <= ranks:
            degree *= 2
        first = min(range(0, ranks - degree + 1, degree), key=lambda r: (max(loads[r:r + degree]), r))
        for piece in range(2 * degree):
            a, b = (begin + (end - begin) * p // (2 * degree) for p in (piece, piece + 1))
            pieces.append((a, b, first + min(piece, 2 * degree - 1 - piece)))
        for rank in range(first, first + degree):
            loads[rank] += pairs[begin, end] / degree
    return joined(pieces)


WAYS = {"by area": by_area, "zigzag": zigzag, "rows": rows}


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def corpora(seeds):
    for corpus in CORPORA:
        print(f"\n| {corpus} | " + " | ".join(WAYS) + " |")
        print("|---|" + "---:|" * len(WAYS))
        for machine, ranks in SETTINGS:
            gains = {way: [] for way in WAYS}
            for seed in range(seeds):
                setting = (drawn(corpus, seed), ranks, machine, 32, 8)
                ours = sum(planned(setting, "--schedule", "placed"))
                for way, deal in WAYS.items():
                    gains[way].append(sum(dealt(deal, setting)) / ours)
            name = os.path.basename(machine).removesuffix(".json")
            print(f"| {name}, {ranks} | " + " | ".join(f"{mean(gain):.2f}" for gain in gains.values()) + " |", flush=True)


def packs(path, tokens, count):
    """Documents of the histogram's middle lengths, by their number, cut at a quarter of the pack."""
    with open(path, encoding="utf-8") as file:
        rows = [(sum(map(int, row["range"].strip("[]").split(","))) // 2, int(row["number"]))
                for row in csv.DictReader(file)]
    pieces = []
    for length, number in rows:
        pieces.append((tokens // 4, number * (length // (tokens // 4))))
        pieces.append((length % (tokens // 4), number))
    chance = random.Random(1)
    lengths, numbers = zip(*[(length, number) for length, number in pieces if length and number])
    for _ in range(count):
        ends = [0]
        while ends[-1] < tokens:
            ends.append(min(tokens, ends[-1] + chance.choices(lengths, numbers)[0]))
        yield ends


def published(path):
    """Their setting: 8192 tokens a GPU, 64 query and 8 key heads. TFLOP/s of a GPU, forward and backward."""
    ways = {"by area": lambda setting: dealt(by_area, setting), "zigzag": lambda setting: dealt(zigzag, setting),
            "placed": lambda setting: planned(setting, "--schedule", "placed")}
    print("| H100 | " + " | ".join(ways) + " |")
    print("|---|" + "---:|" * len(ways))
    for ranks in (8, 16, 32, 64):
        rates = {name: [] for name in ways}
        for ends in packs(path, 8192 * ranks, 5):
            pairs = sum((b - a) * (b - a + 1) // 2 for a, b in zip(ends, ends[1:]))
            flops = 4 * 128 * 64 * pairs / ranks / 1e12
            for name, way in ways.items():
                forward, backward = way((ends, ranks, "dgx-h100x8", 64, 8))
                rates[name].append((flops / forward, 2.5 * flops / backward))
        cells = [" / ".join(f"{sum(column) / len(rows):.0f}" for column in zip(*rows)) for rows in rates.values()]
        print(f"| {ranks} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[2] == "--published":
        published(sys.argv[3])
    else:
        corpora(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
