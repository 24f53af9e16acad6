#!/usr/bin/env python3
"""Keys that hold their values, and what sending latents would cost: bytes, FLOPs, files, errors.

usage: latents.py DISTATTN
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from bad_files import npy
from bad_input import USAGE

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = ["--seq", "4096", "--heads", "128", "--head-dim", "192", "--value-dim", "128", "--dtype", "bf16"]
RANKS, TOKENS, LATENT, ROTATED = 4, 4096, 512, 64


def distattn(*arguments, folder=None):
    return subprocess.run([DISTATTN, *arguments], cwd=folder, text=True, capture_output=True, timeout=120)


def rows_of(*options, machine="dgx-a100x2", schedule="ring", ranks=RANKS):
    done = distattn("plan", *options, "--schedule", schedule, "--ranks", str(ranks), "--backward", "--machine", machine,
                    "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def plan(*options, sent_as=None):
    return {row["pass"]: row for row in rows_of(*options)[0] if row["sent_as"] == sent_as}


def refused(words, *arguments, folder=None):
    done = distattn(*arguments, folder=folder)
    assert done.returncode == USAGE and words in done.stderr and done.stderr.count("\n") == 1, (arguments, done.stderr)


def expansion():
    option = ["--latents", f"{LATENT}+{ROTATED}"]
    plain, keys = plan(*SHAPE), plan(*SHAPE, *option, sent_as="keys")
    latents = plan(*SHAPE, *option, sent_as="latents")
    sent = TOKENS // RANKS * (RANKS - 1) * (LATENT + ROTATED) * 2  # every rank passes three quarters of the keys on
    product = 2 * LATENT * 128 * (192 - ROTATED + 128)
    received = TOKENS // RANKS * (RANKS - 1)
    for name, products in (("forward", 1), ("backward", 3)):
        assert plain[name]["chosen"] is None and plain[name]["expansion_flops_max"] is None
        new = ("sent_as", "chosen", "expansion_flops_max", "expansion_s")
        assert {**keys[name], **{field: None for field in new}} == plain[name], (keys[name], plain[name])
        assert keys[name]["expansion_flops_max"] == 0
        row = latents[name]
        assert row["expansion_flops_max"] == products * received * product, row
        assert row["expansion_s"] > 0
    assert latents["forward"]["bytes_sent_max"] == sent, (latents["forward"], sent)
    assert latents["backward"]["bytes_sent_max"] < keys["backward"]["bytes_sent_max"] / 20
    for words, value in (("give less than 192", "512+192"), ("", "512+"), ("", "many"), ("", "0")):
        refused(words, "plan", *SHAPE, "--latents", value)
    refused("absorbed keys are latents", "plan", *SHAPE, "--shared-kv", "--latents", "512+64")


def machine(folder, bytes_per_s, flops_per_s):
    with open(os.path.join(folder, "machine.json"), "w") as file:
        json.dump({"nodes": 1, "ranks_per_node": 8, "near": {"bytes_per_s": bytes_per_s, "latency_s": 1e-6},
                   "far": {"bytes_per_s": bytes_per_s, "latency_s": 1e-6, "per": "rank"},
                   "flops_per_s": {"bf16": flops_per_s}, "memory_bytes": 1 << 40, "cores": 0}, file)
    return os.path.join(folder, "machine.json")


def choice():
    """Slow links and fast devices send latents, fast links and slow devices send keys; auto finds the better of both."""
    with tempfile.TemporaryDirectory() as folder:
        for bytes_per_s, better in ((1e9, "latents"), (1e13, "keys")):
            on = machine(folder, bytes_per_s, 4e14)
            rows, notes = rows_of(*SHAPE, "--latents", "512+64", machine=on, schedule="auto,ring,burst,ulysses")
            for name in ("forward", "backward"):
                of_pass = [row for row in rows if row["pass"] == name]
                assert [row["predicted_s"] for row in of_pass] == sorted(row["predicted_s"] for row in of_pass)
                assert of_pass[0]["sent_as"] == better and of_pass[0]["chosen"], of_pass[0]
                ring = [row for row in of_pass if row["schedule"] == "ring" and not row["auto"]]
                assert len(ring) == 2 and {row["sent_as"] for row in ring} == {"keys", "latents"}
                assert [row["chosen"] for row in ring] == [True, False], ring  # the faster one stands first
                assert f"{name} on 4 ranks, 4096 tokens: send {better} (" in notes, notes
            totals = {}
            for row in rows:
                if row["auto"]:
                    totals[row["sent_as"]] = totals.get(row["sent_as"], 0) + row["predicted_s"]
                    assert row["chosen"] == (row["sent_as"] == better), row
            assert totals["keys" if better == "latents" else "latents"] >= totals[better]
            assert ("rather than keys (" in notes) == (better == "latents") and "FLOP to expand them" in notes, notes
        done = distattn("plan", *SHAPE, "--latents", "512+64", "--schedule", "ring", "--ranks", "4", "--machine", on)
        assert done.stdout.count("keys (chosen)") == 1 and "latents (chosen)" not in done.stdout, done.stdout
        done = distattn("plan", *SHAPE, "--latents", "512+64", "--schedule", "auto", "--mask", "causal*2", "--mask",
                        "full*1", "--ranks", "4", "--machine", on, "--json")
        assert done.returncode == 0 and sum(row["chosen"] for row in json.loads(done.stdout)) == 2, done


def sent_once():
    absorbed = ["--seq", "4096", "--heads", "128", "--kv-heads", "1", "--head-dim", "576", "--value-dim", "512"]
    apart, shared = plan(*absorbed), plan(*absorbed, "--shared-kv")
    for name in ("forward", "backward"):
        assert apart[name]["bytes_sent_max"] * 576 == shared[name]["bytes_sent_max"] * 1088
        assert shared[name]["shared_kv"] and not apart[name]["shared_kv"]
    refused("choose value-dim 64 or less", "plan", "--seq", "64", "--heads", "2", "--head-dim", "64", "--value-dim", "128",
            "--shared-kv")


def files():
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in (("q", (1, 21, 4, 24)), ("k", (1, 21, 1, 24)), ("do", (1, 21, 4, 16)), ("wrong", (1, 21, 4, 24))):
            count = math.prod(shape)
            npy(os.path.join(folder, f"{name}.npy"), shape,
                data=struct.pack(f"<{count}f", *(math.sin(len(name) + 3 * i) for i in range(count))))
        run = ["run", "--q", "q.npy", "--k", "k.npy", "--shared-kv", "--ranks", "3", "--schedule", "zigzag-ring"]
        done = distattn(*run, "--do", "do.npy", "--value-dim", "16", "--backward", "--check", "--json", "--out", "out",
                        folder=folder)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["shared_kv"] and sorted(os.listdir(os.path.join(folder, "out"))) == [
            "dk.npy", "dq.npy", "lse.npy", "o.npy"]
        refused("--shared-kv without --value-dim", *run, folder=folder)
        refused("choose --value-dim 24 or less", *run, "--value-dim", "32", folder=folder)
        refused("has rows of 24 and values have 16", *run, "--value-dim", "16", "--backward", "--do", "wrong.npy",
                folder=folder)
        refused("leave one of them out", *run, "--v", "k.npy", "--value-dim", "16", folder=folder)

        shape = ["--seq", "37", "--heads", "4", "--kv-heads", "1", "--head-dim", "24", "--value-dim", "16", "--shared-kv"]
        done = distattn("show", *shape, "--ranks", "2", "--schedule", "ring", "--format", "json")
        assert done.returncode == 0, done.stderr
        with open(os.path.join(folder, "ring.json"), "w") as file:
            file.write(done.stdout)
        done = distattn("run", "--program", "ring.json", "--random", "--check", folder=folder)
        assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    expansion()
    choice()
    sent_once()
    files()
    print("latents: bytes, FLOPs, files and errors as they should be")
