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

from bad_input import USAGE, npy

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = ["--seq", "4096", "--heads", "128", "--head-dim", "192", "--value-dim", "128", "--dtype", "bf16"]
RANKS, TOKENS, LATENT, ROTATED = 4, 4096, 512, 64


def distattn(*arguments, folder=None):
    return subprocess.run([DISTATTN, *arguments], cwd=folder, text=True, capture_output=True, timeout=120)


def plan(*options):
    done = distattn("plan", *options, "--schedule", "ring", "--ranks", str(RANKS), "--backward", "--machine", "dgx-a100x2",
                    "--json")
    assert done.returncode == 0, done.stderr
    return {row["pass"]: row for row in json.loads(done.stdout)}


def refused(words, *arguments, folder=None):
    done = distattn(*arguments, folder=folder)
    assert done.returncode == USAGE and words in done.stderr and done.stderr.count("\n") == 1, (arguments, done.stderr)


def expansion():
    plain, latent = plan(*SHAPE), plan(*SHAPE, "--latents", f"{LATENT}+{ROTATED}")
    sent = TOKENS // RANKS * (RANKS - 1) * (LATENT + ROTATED) * 2  # every rank passes three quarters of the keys on
    product = 2 * LATENT * 128 * (192 - ROTATED + 128)
    received = TOKENS // RANKS * (RANKS - 1)
    for name, products in (("forward", 1), ("backward", 3)):
        row = latent[name]
        assert plain[name]["latent_bytes_sent_max"] is None and plain[name]["expansion_flops_max"] is None
        assert row["bytes_sent_max"] == plain[name]["bytes_sent_max"]
        assert row["expansion_flops_max"] == products * received * product, row
        assert row["expansion_s"] > 0
    assert latent["forward"]["latent_bytes_sent_max"] == sent, (latent["forward"], sent)
    assert latent["backward"]["latent_bytes_sent_max"] < latent["backward"]["bytes_sent_max"] / 20
    for words, value in (("give less than 192", "512+192"), ("", "512+"), ("", "many"), ("", "0")):
        refused(words, "plan", *SHAPE, "--latents", value)
    refused("absorbed keys are latents", "plan", *SHAPE, "--shared-kv", "--latents", "512+64")


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
    sent_once()
    files()
    print("latents: bytes, FLOPs, files and errors as they should be")
