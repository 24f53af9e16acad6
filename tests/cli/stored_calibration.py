#!/usr/bin/env python3
"""A stored calibration that cannot be used, and homes in which none can be stored: no run is kept from its result.

usage: stored_calibration.py DISTATTN
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = "--seq 64 --heads 2 --head-dim 16"
COMMANDS = {"plan": f"plan {SHAPE} --ranks 2 --json", "run": f"run --random {SHAPE} --ranks 2 --threads 1 --json",
            "show": f"show {SHAPE} --ranks 2 --format svg", "validate": f"validate {SHAPE} --ranks 2 --schedule auto --json",
            "bench": f"bench {SHAPE} --ranks 2 --threads 1 -n 1 -w 0 --schedule ring --json",
            "step --predicted": f"plan --step layers=1,hidden=64,heads=2 {SHAPE.split(' --heads')[0]} --ranks 2 --json"}
NOTE = "the stored calibration is not used"


def distattn(command, cache=None, **options):
    """With XDG_CACHE_HOME set to `cache`, or with the variables of `home` alone."""
    variables = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "HOME")}
    variables.update({"XDG_CACHE_HOME": cache} if cache else options.pop("home", {}))
    return subprocess.run([DISTATTN, *command.split()], env=variables, capture_output=True, text=True, timeout=60, **options)


def file_of(cache):
    cores = json.loads(distattn("info --json", "/nowhere").stdout)["cpu"]["cores"]
    host = re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename)
    return os.path.join(cache, "distattn", f"machine-{host}-{cores}.json")


@contextlib.contextmanager
def place():
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o755)
        os.mkdir(os.path.join(cache, "distattn"))
        yield cache, file_of(cache)


def hold(text):
    def make(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return make


def link_to(target):
    return lambda path: os.symlink(target, path)


KINDS = {"half of one": hold('{"nodes": 1, "near": '), "nothing": hold(""), "a newer version's": hold('{"schema_version": 2}'),
         "something else": hold("\x7fELF\x01\n\n"), "a folder": os.mkdir, "a pipe": os.mkfifo,
         "a device": link_to("/dev/zero"), "a link to nothing": link_to("/nowhere/at/all"),
         "a link to itself": lambda path: os.symlink(os.path.basename(path), path)}


def check_ignored(name, command, cache, path, **options):
    done = distattn(command, cache, **options)
    notes = [line for line in done.stderr.splitlines() if NOTE in line]
    assert done.returncode == 0 and len(notes) == 1, (name, command, done.returncode, done.stderr)
    assert path in notes[0] and "bench --calibrate, or delete it" in notes[0], notes[0]
    assert NOTE not in distattn("-q " + command, cache, **options).stderr, (name, command)
    return done


def broken_ones():
    nominal = distattn(COMMANDS["plan"], "/nowhere").stdout
    for name, make in KINDS.items():
        with place() as (cache, path):
            make(path)
            assert check_ignored(name, COMMANDS["plan"], cache, path).stdout == nominal, name
            check_ignored(name, COMMANDS["run"], cache, path)
            info = json.loads(distattn("info --json", cache).stdout)["calibrated"]
            assert NOTE in info and "never measured here" in info, info
            named = COMMANDS["plan"] + " --machine dgx-h100x8"
            assert NOTE not in distattn(named, cache).stderr, "another machine is named"
            if name != "a pipe":  # one that is named is waited for
                refused = distattn(f"{COMMANDS['plan']} --machine {path}", cache)
                assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1, (name, refused.stderr)
    with place() as (cache, path):
        hold("{")(path)
        for command in COMMANDS.values():
            check_ignored("half of one", command, cache, path)


def unreadable():
    """Root reads everything: this needs another user where root runs it."""
    with place() as (cache, path):
        hold("{}")(path)
        os.chmod(path, 0)
        somebody = {}
        if os.geteuid() == 0:
            somebody = {"user": 65534, "group": 65534}
            try:
                assert distattn("info", cache, **somebody).returncode == 0
            except PermissionError:
                print("unreadable: another user cannot start the command here")
                return
        done = check_ignored("unreadable", COMMANDS["plan"], cache, path, **somebody)
        assert "Permission denied" in done.stderr, done.stderr
        os.chmod(os.path.dirname(path), 0)  # whose folder this is has stored nothing for this user
        done = distattn(COMMANDS["plan"], cache, **somebody)
        assert done.returncode == 0 and NOTE not in done.stderr, done.stderr
        refused = distattn("bench --calibrate", cache, **somebody)
        assert refused.returncode == 3 and cache in refused.stderr, refused.stderr
        os.chmod(os.path.dirname(path), 0o755)


def in_the_way():
    with place() as (cache, path):
        os.makedirs(os.path.join(path, "mine"))
        check_ignored("a folder with something", COMMANDS["plan"], cache, path)
        refused = distattn("bench --calibrate", cache)
        assert refused.returncode == 3 and path in refused.stderr and "move it away" in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1 and os.path.isdir(os.path.join(path, "mine")), refused.stderr


def homes():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "file")
        hold("")(file)
        for home, can_store in (({}, False), ({"HOME": ""}, False), ({"HOME": "relative"}, False), ({"HOME": "/proc"}, False),
                                ({"HOME": file}, False), ({"XDG_CACHE_HOME": file}, False),
                                ({"XDG_CACHE_HOME": "relative", "HOME": "/dev/null"}, False),
                                ({"HOME": os.path.join(folder, "new")}, True),
                                ({"XDG_CACHE_HOME": "relative", "HOME": os.path.join(folder, "relative")}, True)):
            done = distattn(COMMANDS["plan"], home=home)
            assert done.returncode == 0 and "calibration" not in done.stderr, (home, done.stderr)
            if not can_store:
                refused = distattn("bench --calibrate", home=home)
                assert refused.returncode == 3 and "cannot store the calibration" in refused.stderr, (home, refused.stderr)
                assert len(refused.stderr.splitlines()) == 1 and not refused.stdout, (home, refused)
        assert not os.path.exists("relative"), "a relative folder is used"


def odd_hosts():
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode != 0 \
            or shutil.which("hostname") is None:
        print("odd_hosts: the host's name cannot be changed here")
        return
    with tempfile.TemporaryDirectory() as cache:
        for host, name in (("a/b", "a_b"), ("..", ".."), ("a b'$(x)", "a_b___x_"), ("n.cluster.example", "n.cluster.example")):
            cores = re.search(r"-(\d+)\.json$", file_of(cache))[1]
            path = os.path.join(cache, "distattn", f"machine-{name}-{cores}.json")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            hold("{")(path)
            script = f'printf %s "$0" > /proc/sys/kernel/hostname && exec {DISTATTN} {COMMANDS["plan"]}'
            done = subprocess.run(["unshare", "--uts", "sh", "-c", script, host], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "XDG_CACHE_HOME": cache})
            assert done.returncode == 0 and NOTE in done.stderr and path in done.stderr, (host, done.stderr)


for check in (broken_ones, unreadable, in_the_way, homes, odd_hosts):
    check()
    print(check.__name__, "fine")
