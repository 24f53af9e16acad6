#!/usr/bin/env python3
"""distattn run as a user calls it: pictures through links and pipes, windows, what its JSON says of passes.

usage: run.py DISTATTN
"""
import json
import os
import subprocess
import sys
import tempfile
import threading

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = ["--random", "--seq", "64", "--heads", "2", "--head-dim", "8"]


def run(*options, cwd=None):
    done = subprocess.run([DISTATTN, "run", *SHAPE, *options, "--json"], cwd=cwd, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stderr.startswith("distattn:"), (options, done.returncode, done.stderr)
    return json.loads(done.stdout)


def passes():
    assert run()["backward"] is False
    assert run("--backward")["backward"]["steps"] >= 1


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


for check in (passes, windows, links, pipes):
    check()
    print(check.__name__, "fine")
