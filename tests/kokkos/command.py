#!/usr/bin/env python3
"""The command on every backend of Kokkos that it has: what surrounds it changes nothing, and what it cannot do is one
line.

usage: command.py DISTATTN [sanitized]
"""
import ctypes.util
import json
import os
import resource
import signal
import subprocess
import sys
import time

DISTATTN = os.path.abspath(sys.argv[1])
SANITIZED = "sanitized" in sys.argv
RUN = ("run", "--random", "--seq", "96", "--heads", "2", "--head-dim", "16", "--ranks", "2", "--threads", "2",
       "--backward", "--schedule", "ring", "--check", "-q", "--json")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("KOKKOS_", "OMP_"))}


def call(*command, megabytes=None, **variables):
    def limit():
        if megabytes:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    return subprocess.run([DISTATTN, *command], capture_output=True, text=True, timeout=120, preexec_fn=limit,
                          env={**CLEAN, **variables})


NAMED = [each for each in json.loads(call("info", "--json").stdout)["backends"] if each["name"].startswith("kokkos")]
BACKENDS = [each["name"] for each in NAMED if each["usable"]]


def timeless(told):
    return {name: timeless(told[name]) if isinstance(told[name], dict) else told[name] for name in told
            if not name.endswith("_s") and name != "gflops"}


def result(backend, **variables):
    """What a run says, its errors too, without its times."""
    done = call(*RUN, "--backend", backend, **variables)
    assert done.returncode == 0 and done.stderr == "", (backend, variables, done)
    return timeless(json.loads(done.stdout))


def settings_of_other_programs():
    """They change nothing, well or ill."""
    kokkos = ("NUM_THREADS", "NUMA", "DEVICE_ID", "NUM_DEVICES", "RAND_DEVICES", "SKIP_DEVICE", "DISABLE_WARNINGS",
              "TUNE_INTERNALS", "MAP_DEVICE_ID_BY", "PRINT_CONFIGURATION", "TOOLS_LIBS", "TOOLS_ARGS", "PROFILE_LIBRARY")
    openmp = {"NUM_THREADS": ("1", "100000", "1,1"), "THREAD_LIMIT": ("1", "3"), "DYNAMIC": ("true",), "NESTED": ("true",),
              "MAX_ACTIVE_LEVELS": ("0", "4"), "SCHEDULE": ("dynamic,3",), "WAIT_POLICY": ("active",),
              "PROC_BIND": ("true", "spread"), "PLACES": ("cores",), "STACKSIZE": ("1M",)}
    settings = [("KOKKOS_" + name, value) for name in kokkos for value in ("abc", "-1")]
    settings += [("OMP_" + name, value) for name, values in openmp.items() for value in values]
    for backend in BACKENDS:
        alone = result(backend)
        for name, value in settings:
            assert result(backend, **{name: value}) == alone, (backend, name, value)


def address_space_is_short():
    """The process ends, well or with one line that says what was missing."""
    for backend in () if SANITIZED else BACKENDS:
        for megabytes in (*range(44, 62, 2), 70, 80, 100, 150, 200, 300):
            done = call(*RUN, "--backend", backend, megabytes=megabytes)
            assert done.returncode in (0, 3), (backend, megabytes, done)
            assert done.returncode == 0 or done.stderr.count("\n") == 1, (backend, megabytes, done)
            assert "lane: Resource" not in done.stderr, (backend, megabytes, done)


def computing(backend, **variables):
    """A process whose two ranks of two threads compute until they are told to end."""
    process = subprocess.Popen([DISTATTN, "bench", "--seq", "96", "--heads", "2", "--head-dim", "16", "--ranks", "2",
                                "--threads", "2", "--schedule", "ring", "-n", "1000000", "-v", "--backend", backend],
                               text=True, env={**CLEAN, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while "now ring on 2 ranks" not in (line := process.stderr.readline()):
        assert line, (backend, "it has ended")
    return process


def busiest_threads(process, count):
    """The processors that each of them may run on."""
    took = {}
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{thread}/stat") as file:
            took[int(thread)] = int(file.read().rpartition(")")[2].split()[11])  # its time in the program itself
    return [os.sched_getaffinity(thread) for thread in sorted(took, key=took.get)[-count:]]


def bound_by_openmp():
    """GCC's OpenMP binds the main thread where it is loaded, and each rank's threads from the first processor on: all
    compute on all processors nevertheless, and there are as many cores."""
    gomp, all_here = ctypes.util.find_library("gomp"), os.sched_getaffinity(0)
    if SANITIZED or gomp is None or len(all_here) < 2:
        return
    cores = json.loads(call("info", "--json").stdout)["cpu"]["cores"]
    two = "{%d},{%d}" % tuple(sorted(all_here)[:2])
    for setting, value in (("OMP_PROC_BIND", "true"), ("OMP_PLACES", "threads"), ("OMP_PLACES", two)):
        binds = {setting: value, "LD_PRELOAD": gomp}
        alone = subprocess.run([sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"], text=True,
                               env={**CLEAN, **binds}, capture_output=True).stdout
        assert int(alone) < len(all_here), (setting, value, "it binds")
        told = json.loads(call("info", "--json", **binds).stdout)["cpu"]["cores"]
        assert told == (min(2, cores) if value == two else cores), (setting, value, told)
        for backend in BACKENDS:
            process = computing(backend, **binds)
            time.sleep(1)
            free = busiest_threads(process, 4)
            process.kill()
            process.communicate(timeout=60)
            assert all(len(each) >= 2 for each in free), (backend, setting, value, free)


def interrupted():
    for backend in BACKENDS:
        process = computing(backend)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=60)
        assert process.returncode == 130 and not out and "interrupted" in told, (backend, process.returncode, told)


def what_it_has_not():
    """A space of another Kokkos, and more threads than a space has, by name."""
    for each in NAMED:
        if each["built"]:
            continue
        done = call(*RUN, "--backend", each["name"])
        assert done.returncode == 3 and done.stdout == "" and done.stderr.count("\n") == 1, done
        assert each["name"] in done.stderr and each["why"] in done.stderr, (each, done)
    if "kokkos:openmp" in BACKENDS:
        done = call(*RUN, "--threads", "513", "--backend", "kokkos:openmp")
        assert done.returncode == 3 and done.stdout == "" and done.stderr.count("\n") == 1, done
        assert "513 threads are asked for where Kokkos has 512" in done.stderr, done


if not BACKENDS:
    print("SKIPPED: no backend of Kokkos is usable here")
    sys.exit(77)
for check in (settings_of_other_programs, address_space_is_short, bound_by_openmp, interrupted, what_it_has_not):
    check()
    print(check.__name__, "fine on", *BACKENDS)
