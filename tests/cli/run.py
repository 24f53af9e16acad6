#!/usr/bin/env python3
"""distattn run as a user calls it, and what validate shares with it: pictures through links and pipes, windows, memory,
machines, what JSON says of passes.

usage: run.py DISTATTN
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
from random import Random

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = ["--random", "--seq", "64", "--heads", "2", "--head-dim", "8"]


def run(*options, cwd=None):
    done = subprocess.run([DISTATTN, "run", *SHAPE, *options, "--json"], cwd=cwd, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stderr.startswith("distattn:"), (options, done.returncode, done.stderr)
    return json.loads(done.stdout)


def passes():
    assert run()["backward"] is False
    assert run("--backward")["backward"]["steps"] >= 1


def value_heads():
    got = run("--value-dim", "16", "--backward", "--check", "--ranks", "3", "--schedule", "zigzag-ring")
    assert (got["head_dim"], got["value_dim"]) == (8, 16) and got["error"]["dv"] < got["error"]["tolerance"], got


def windows():
    assert run("--window", "1K,-1")["mask"] == "causal window 1024,-1"


def links():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "real"))
        for name in ("trace", "svg"):
            os.symlink(f"real/{name}", os.path.join(folder, name))
        for _ in range(2):
            run("--trace", "trace", "--svg", "svg", cwd=folder)
        assert sorted(os.listdir(folder)) == ["real", "svg", "trace"]
        assert sorted(os.listdir(os.path.join(folder, "real"))) == ["svg", "trace"]
        for name in ("trace", "svg"):
            assert os.path.islink(os.path.join(folder, name))
        with open(os.path.join(folder, "trace")) as trace:
            json.load(trace)


def write_npy(path, values, shape):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack(f"<{len(values)}f", *values))


def config_files():
    """Every option, short names too, by the long name; TOML's dots and underscores."""
    shape = (24, 2, 8)
    with tempfile.TemporaryDirectory() as folder:
        for name in "qkv":
            write_npy(os.path.join(folder, f"{name}.npy"), [math.sin(7 * i) for i in range(math.prod(shape))], shape)
        with open(os.path.join(folder, "options.toml"), "w") as file:
            file.write('plan.seq = 1_024\nplan.window = [\n  100,  # before\n  0,\n]\n'
                       '[run]\njson = true\nq = "q.npy"\nk = \'k.npy\'\nv = "\\u0076.npy"\nn = 3\n')
        done = subprocess.run([DISTATTN, "run", "--config", "options.toml"], cwd=folder, text=True, capture_output=True,
                              timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["seq"] == 24
        done = subprocess.run([DISTATTN, "plan", "--config", "options.toml", *SHAPE[3:], "--schedule", "ring", "--json"],
                              cwd=folder, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0 and json.loads(done.stdout)[0]["seq"] == 1024, done.stderr


def ranks_of_no_launcher():
    """One variable of a launcher is none: whoever has it prints. All of them: rank 0 alone does."""
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
                "MASTER_PORT": "29500"}
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURM_JOB_ID": "7",
             "SLURM_STEP_ID": "0", "SLURM_TASKS_PER_NODE": "2", "SLURM_NODELIST": "localhost"}
    pmix = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "job"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX_", "SLURM_", "TORCHELASTIC_"))
             and name not in torchrun}

    def output(**variables):
        done = subprocess.run([DISTATTN, "--version"], env={**clean, **variables}, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, (variables, done.stderr)
        return done.stdout
    for alone in ({"RANK": "1"}, {"PMIX_RANK": "1"}, {"SLURM_PROCID": "1"}, {**torchrun, "RANK": "0"},
                  {"RANK": "1", **pmix, "PMIX_RANK": "0"}):
        assert output(**alone).startswith("distattn "), alone
    for launched in (torchrun, slurm, pmix):
        assert output(**launched) == "", launched


def large_inputs():
    """Scores of large inputs round by more: right results are not called wrong, by a tolerance that is still small."""
    shape = (64, 2, 64)
    with tempfile.TemporaryDirectory() as folder:
        random = Random(5)
        for name in "qkv":
            write_npy(os.path.join(folder, f"{name}.npy"), [random.gauss(0, 6) for _ in range(math.prod(shape))], shape)
        command = [DISTATTN, "run", *(f"--{name}={name}.npy" for name in "qkv"), "--check", "--backward", "--json"]
        done = subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        errors = json.loads(done.stdout)["error"]
        assert max(errors["o"], errors["dq"], errors["dk"], errors["dv"]) < errors["tolerance"] < 1e-4, errors


def cancelling_terms():
    """Little is left of dS = P * (dP - delta) where a query sees two keys alike: it rounds as dP and delta do."""
    command = [DISTATTN, "run", "--random", "--seq", "2", "--heads", "1", "--head-dim", "256", "--check", "--backward"]
    for seed in ("9", "85", "102"):
        done = subprocess.run([*command, "--seed", seed], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0 and ": ok" in done.stdout, (seed, done.stdout, done.stderr)


def pictures_beside_results():
    with tempfile.TemporaryDirectory() as folder:
        run("--out", "new", "--svg", "new/run.svg", "--html", "new/run.html", cwd=folder)
        assert sorted(os.listdir(os.path.join(folder, "new"))) == ["lse.npy", "o.npy", "run.html", "run.svg"]


def memory_of_both_passes():
    """Buffers of both passes are there at once: --memory is for both."""
    def needed(row):
        return row["memory_bytes"], row["backward"]["memory_bytes"]
    options = ["--backward", "--ranks", "4", "--schedule"]
    ring = needed(run(*options, "ring"))
    assert needed(run(*options, "ring", "--memory", str(sum(ring)))) == ring
    for command, says in (["run", "--random"], "ring needs "), (["plan"], "ring on 4 ranks: both passes need "):
        refused = [DISTATTN, *command, *SHAPE[1:], *options, "ring", "--memory"]
        done = subprocess.run([*refused, str(max(ring))], text=True, capture_output=True, timeout=60)
        assert done.returncode == 2 and says in done.stderr, (done.returncode, done.stdout, done.stderr)
        subprocess.run([*refused, str(sum(ring))], check=True, capture_output=True, timeout=60)
    for limit in (sum(ring), sum(needed(run(*options, "auto")))):
        assert sum(needed(run(*options, "auto", "--memory", str(limit)))) <= limit


def memory_of_steps():
    command = [DISTATTN, "plan", "--step", "llama-7b", "--machine", "dgx-a100x2", "--seq", "64K", "--ranks", "16",
               "--schedule", "ring", "--json"]
    whole = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    limit = sorted(row["memory_bytes"] for row in whole)[1]
    some = subprocess.run([*command, "--memory", str(limit)], check=True, capture_output=True, text=True, timeout=60)
    kept = json.loads(some.stdout)
    assert {row["checkpoint"] for row in kept} == {row["checkpoint"] for row in whole if row["memory_bytes"] <= limit}
    assert some.stderr.count("skipped ring under") == len(whole) - len(kept) > 0, some.stderr


def machines_to_validate_for():
    """Nodes of a machine are what routes follow, and auto chooses for what it holds; it has 2 nodes of 8 ranks."""
    def validated(*options):
        return subprocess.run([DISTATTN, "validate", *SHAPE[1:], "--backend", "reference", *options],
                              capture_output=True, text=True, timeout=60)
    early, machine = ("--schedule", "ring", "--ranks", "16", "--ahead", "1"), ("--machine", "dgx-a100x2")
    refused = validated(*early)
    assert refused.returncode == 2 and "nothing travels between nodes" in refused.stderr, refused
    done = validated(*early, *machine)
    assert done.returncode == 0 and done.stdout.endswith("\n2 passed, 0 failed\n"), done
    done = validated("--schedule", "auto", "--ranks", "16,17", *machine)
    assert done.returncode == 0 and done.stdout.endswith("\n2 passed, 0 failed\n"), done
    assert "skipped auto on 17 ranks: 17 ranks do not fit machine" in done.stderr, done


def names_that_are_no_text():
    """A file's name may hold bytes that are no UTF-8; JSON may not."""
    mask = b"\xff.json"
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(os.fsencode(folder), mask), "w") as file:
            file.write('[{"q":[0,64],"k":[0,64],"diff":[0,null]}]')
        for command in (["run", "--random"], ["validate", "--ranks", "2", "--schedule", "ring", "--backend", "reference"],
                        ["bench", "-n", "1", "-w", "0"]):
            done = subprocess.run([DISTATTN, *command, *SHAPE[1:], "--mask", mask, "--json"], cwd=folder,
                                  capture_output=True, timeout=60)
            assert done.returncode == 0, (command, done.stderr)
            assert "\ufffd.json" in json.dumps(json.loads(done.stdout), ensure_ascii=False), done.stdout


def pipes():
    with tempfile.TemporaryDirectory() as folder:
        pipe, read = os.path.join(folder, "pipe"), []
        os.mkfifo(pipe)

        def reading():
            with open(pipe) as end:
                read.append(end.read())
        reader = threading.Thread(target=reading, daemon=True)
        reader.start()
        run("--trace", pipe)
        reader.join(20)
        assert read and json.loads(read[0])
        assert os.listdir(folder) == ["pipe"]
    piped = subprocess.run([DISTATTN, "run", *SHAPE, "--svg", "/dev/fd/1", "-q"], capture_output=True, timeout=60)
    assert piped.returncode == 0 and b"</svg>" in piped.stdout, piped.stderr


for check in (passes, value_heads, windows, links, config_files, ranks_of_no_launcher, large_inputs,
              cancelling_terms, pictures_beside_results, memory_of_both_passes, memory_of_steps,
              machines_to_validate_for, names_that_are_no_text, pipes):
    check()
    print(check.__name__, "fine")
