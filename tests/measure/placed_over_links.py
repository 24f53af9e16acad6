#!/usr/bin/env python3
"""Packed documents between hosts whose links are shaped: `placed` beside the best schedules of a fixed shape, measured
over UCX and predicted. Hosts are network namespaces of this machine. Root only; minutes. Not a test: times depend on what
else the machine does.

usage: placed_over_links.py DISTATTN [RATE] [REPETITIONS]    RATE as tc says it (1gbit)

Documents are those of a packing of 512K tokens, 32 times shorter. Machine: this one, calibrated first, whose cores HOSTS
hosts of PER_HOST ranks with one thread each share. Links: what the rate leaves to payload.
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launch"))
import netns  # noqa: E402
from ranks import BINARY, SCRATCH, clean_up, expect, finish, start_ranks  # noqa: E402

RATE = sys.argv[2] if len(sys.argv) > 2 else "1gbit"
REPETITIONS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
HOSTS, PER_HOST = 4, 2
RANKS = HOSTS * PER_HOST
SHORTER = 32
SHAPE = ("--heads", "8", "--kv-heads", "4", "--head-dim", "64", "--backward")
# Of an Ethernet frame of 1500 bytes, 1448 are payload of TCP, and tc counts 1514.
PAYLOAD = 1448 / 1514
FIRST = ("nice", "-n", "-19")  # before whatever else the machine does
OVER = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": netns.Network.device}
FIXED = 2  # schedules of a fixed shape that are measured for each corpus: those that are predicted to be fastest


def bytes_per_s(rate):
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6)):
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor / 8 * PAYLOAD
    raise SystemExit(f"{rate} (neither mbit nor gbit)")


def distattn(*arguments):
    return json.loads(subprocess.run([BINARY, *map(str, arguments)], check=True, capture_output=True, text=True).stdout)


def documents(corpus):
    """Ends of a corpus's documents, shorter; those that would be empty are left out."""
    shown = distattn("show", "--schedule", "ring", "--ranks", 1, "--seq", "512K", "--documents", corpus, "--heads", 1,
                     "--head-dim", 8, "--format", "json")
    shown = shown if isinstance(shown, dict) else shown[0]
    ends = shown["outline"]["sharding"]["problem"]["mask"]["documents"]
    return sorted({end // SHORTER for end in ends})


def scaled(rates, factor):
    """Numbers of a curve, of curves by name, or one number."""
    if isinstance(rates, dict):
        return {name: scaled(each, factor) for name, each in rates.items()}
    if isinstance(rates, list):
        return [[at, rate * factor] for at, rate in rates]
    return rates * factor


def machine_file():
    """What is known of these hosts before anything is sent between them: this machine, of whose cores each rank has a
    part, and the links that it is given."""
    [end] = finish(start_ranks(1, "bench", "--calibrate", *SHAPE[:-1], "--json", prefix=lambda rank: FIRST,
                               XDG_CACHE_HOME=str(SCRATCH)))
    expect(end[0] == 0, end)
    here = json.loads(end[1])
    part = min(1, here["cores"] / RANKS)
    tiles = {name: scaled(value, 1 / part) if name != "block" else value for name, value in here["tiles"].items()}
    path = SCRATCH / "hosts.json"
    path.write_text(json.dumps({
        "name": "hosts", "nodes": HOSTS, "ranks_per_node": PER_HOST, "cores": 0, "memory_bytes": int(4e9),
        "memory_bytes_per_s": here["memory_bytes_per_s"] * part, "near": {"bytes_per_s": 1.5e9 * part, "latency_s": 60e-6},
        "far": {"bytes_per_s": bytes_per_s(RATE), "latency_s": 100e-6, "per": "node"},
        "flops_per_s": {"fp32": scaled(here["flops_per_s"]["fp32"], part)}, "tiles": tiles}))
    print(f"{HOSTS} hosts of {PER_HOST} ranks, each with {part:g} of a core; {RATE} a host")
    return path


def fastest_of_fixed_shape(problem, machine):
    """(name, node size) -> predicted seconds, of the fastest, straight or routed."""
    rows = distattn("plan", *problem, "--ranks", RANKS, "--machine", machine, "--schedule",
                    "all,mesh:1x2x4:zigzag,mesh:1x4x2:zigzag,mesh:2x2x2,mesh:1x8x1:chunked", "--routes", "both", "--json", "-q")
    seconds = {}
    for row in rows:
        if row["schedule"] == "placed":
            continue
        key = row["schedule"], row["node_size"] or 0
        seconds[key] = seconds.get(key, 0) + row["predicted_s"]
    return dict(sorted(seconds.items(), key=lambda each: each[1])[:FIXED])


def measure(network, problem, machine, schedule, node_size):
    """Measured and, of the machine as it is given, predicted seconds of both passes."""
    routes = ("--node-size", node_size if node_size else RANKS) if schedule != "placed" else ()
    ends = finish(start_ranks(RANKS, "run", "--random", "--json", "--threads", "1", "-n", REPETITIONS, "--machine", machine,
                              "--schedule", schedule, *routes, *problem, prefix=lambda rank: (*FIRST, *network.inside(rank)), **OVER))
    expect(all(code == 0 for code, _, _ in ends), schedule, ends)
    report = json.loads(ends[0][1])
    passes = report, report["backward"]
    return sum(each["median_s"] for each in passes), sum(each["predicted_s"] for each in passes)


def main():
    why_not = netns.available()
    if why_not:
        raise SystemExit(why_not)
    machine = machine_file()
    print(f"{'corpus':<12} {'schedule':<28} {'measured s':>10} {'predicted s':>11} {'measured/predicted':>19}")
    for corpus in ("pile", "prolong64k", "prolong512k"):
        ends = documents(corpus)
        problem = ("--seq", ends[-1], "--cu-seqlens", ",".join(map(str, ends)), *SHAPE)
        taken = {}
        fixed = fastest_of_fixed_shape(problem, machine)
        for schedule, node_size in [("placed", 0), *fixed]:
            with netns.Network(HOSTS, rate=RATE, ranks_per_host=PER_HOST) as network:
                seconds, predicted = measure(network, problem, machine, schedule, node_size)
            predicted = fixed.get((schedule, node_size), predicted)  # --node-size describes other nodes
            taken[schedule, node_size] = seconds
            name = schedule + (", routed" if node_size else "")
            print(f"{corpus:<12} {name:<28} {seconds:>10.3f} {predicted:>11.3f} {seconds / predicted:>19.2f}", flush=True)
        placed = taken.pop(("placed", 0))
        print(f"{corpus:<12} {'best fixed shape / placed':<28} {min(taken.values()) / placed:>10.2f}")


try:
    main()
finally:
    clean_up()
