#!/usr/bin/env python3
"""auto is one search: the command, the library and the C API choose the same schedule and routes.

usage: one_auto.py DISTATTN AUTO_PLAN (tests/cli/auto_plan.cpp, built)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DISTATTN, AUTO_PLAN = map(os.path.abspath, sys.argv[1:3])
MHA = {"seq": 4096, "heads": 8, "kv_heads": 8, "head_dim": 64, "mask": "full"}
GQA = {"seq": 6000, "heads": 8, "kv_heads": 2, "head_dim": 32, "mask": "causal"}
DOCUMENTS = {**GQA, "documents": [0, 700, 3000, 6000]}
SLOW_NODES = {
    "name": "slow-nodes", "nodes": 2, "ranks_per_node": 4, "near": {"bytes_per_s": 2e11, "latency_s": 2e-6},
    "far": {"bytes_per_s": 2e10, "latency_s": 2e-5, "per": "node"}, "flops_per_s": {"fp32": 1e13},
    "memory_bytes": 4e10, "memory_bytes_per_s": 1e12, "cores": 0}


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def of_command(case):
    options = {"--seq": "seq", "--heads": "heads", "--kv-heads": "kv_heads", "--head-dim": "head_dim",
               "--mask": "mask", "--machine": "machine", "--ranks": "ranks", "--node-size": "node_size",
               "--ahead": "ahead", "--memory": "memory"}
    words = [word for option, field in options.items() if field in case for word in (option, str(case[field]))]
    if "documents" in case:
        words += ["--cu-seqlens", ",".join(map(str, case["documents"]))]
    words += ["--backward"] * case["backward"]
    return said(DISTATTN, "plan", "--schedule", "auto", "--json", "-q", *words)


def of_others(case):
    code, out, errors = said(AUTO_PLAN, json.dumps(case))
    assert code == 0, (case, errors)
    return json.loads(out)


def same(case):
    """The early posting that was chosen."""
    code, out, errors = of_command(case)
    assert code == 0, (case, errors)
    rows, others = json.loads(out), of_others(case)
    assert isinstance(others["c_api"], list) and len(others["c_api"]) == len(rows), (case, others)
    for row, of_c in zip(rows, others["c_api"]):
        assert of_c == {field: row[field] for field in of_c}, (case, row, of_c)
    first = rows[0]
    assert others["library"] == {"schedule": first["schedule"], "node_size": first["node_size"] or 0,
                                 "ahead": first["ahead"], "mode": first["mode"]}, (case, first, others["library"])
    return first["ahead"]


def machines(folder):
    """Every machine with its ranks: one node, two nodes, nodes of which a description says."""
    slow = pathlib.Path(folder, "slow.json")
    slow.write_text(json.dumps(SLOW_NODES))
    return [("dgx-h100x8", 8), ("dgx-a100x2", 16), (str(slow), 8)]


def choices(folder):
    ahead = {}
    for machine, ranks in machines(folder):
        for shape in (MHA, GQA, DOCUMENTS):
            for backward in (False, True):
                case = {**shape, "machine": machine, "ranks": ranks, "backward": backward}
                ahead.setdefault(machine, []).append(same(case))
    assert set(ahead["dgx-h100x8"]) == {0}, "early messages inside a node"
    assert any(each > 0 for one in ahead.values() for each in one), f"auto nowhere posts early: {ahead}"


def limits(folder):
    """What is given is not searched, and what contradicts itself is refused by all."""
    two = {**GQA, "machine": machines(folder)[2][0], "ranks": 8, "backward": True}
    assert same({**two, "ahead": 2}) == 2
    same({**two, "node_size": 2})
    same({**two, "node_size": 8})
    needed = sum(row["memory_bytes"] for row in json.loads(of_command(two)[1]))
    same({**two, "memory": needed - 1})
    for change, words in (({"ahead": 3, "node_size": 8}, "nothing travels between nodes"),
                          ({"ahead": 3, "machine": "dgx-h100x8"}, "nothing travels between nodes"),
                          ({"memory": 1}, "no schedule fits"),
                          ({"machine": "abacus"}, "no machine 'abacus'")):
        code, _, errors = of_command({**two, **change})
        assert code == 2 and words in errors, (change, code, errors)
        others = of_others({**two, **change})
        for who in ("library", "c_api"):
            assert words in others[who]["refused"], (change, who, others[who])


with tempfile.TemporaryDirectory() as scratch:
    for check in (choices, limits):
        check(scratch)
        print(check.__name__, "fine")
