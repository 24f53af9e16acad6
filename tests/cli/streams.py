#!/usr/bin/env python3
"""distattn whose standard streams are full, closed, or left by their reader: what exit codes and files say then.

usage: streams.py DISTATTN
"""
import os
import shlex
import subprocess
import sys
import tempfile

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = "--seq 64 --heads 2 --head-dim 8"
RUN = f"run --random {SHAPE} --out out --svg run.svg --html run.html --trace run.json"
PLAN = f"plan {SHAPE} --schedule ring --ranks 2"  # with a note on stderr
WRONG = f"run --random {SHAPE} --seq-kv none"


def ends(command, streams):
    """Exit code, stderr, and the files of the folder that it ran in, by their path."""
    with tempfile.TemporaryDirectory() as folder:
        # sh: a process of Python's has all its streams.
        done = subprocess.run(["sh", "-c", f"exec {shlex.quote(DISTATTN)} {command} {streams}"], cwd=folder,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr, sorted(os.path.relpath(os.path.join(path, name), folder)
                                                    for path, _, names in os.walk(folder) for name in names)


def nobody_reads_errors():
    """Notes and errors are lost, the exit code and the results are not."""
    results = ["out/lse.npy", "out/o.npy", "run.html", "run.json", "run.svg"]
    for streams in ("2>/dev/full", "2>&-", "<&- 2>&-"):
        for options in ("", " -v"):
            code, _, files = ends(RUN + options, streams)
            assert (code, files) == (0, results), (streams, code, files)
        assert ends(PLAN, streams)[0] == 0, streams
        assert ends(WRONG, streams)[0] == 2, streams
    for streams in (">/dev/full 2>/dev/full", ">&- 2>&-"):
        assert ends(PLAN, streams)[0] == 3, streams


def output_is_lost():
    """One line says so; no file of results takes the place of the output, and none is left unfinished."""
    for streams in (">/dev/full", ">&-", "<&- >&-"):
        for command in (RUN, f"run --random {SHAPE} --trace run.json", "info", "--help"):
            code, errors, files = ends(command, streams)
            assert code == 3 and "distattn: cannot write to standard output (" in errors, (streams, code, errors)
            assert errors.count("\n") == 1 and not any("partial" in name for name in files), (streams, errors, files)


def reader_has_gone():
    with tempfile.TemporaryDirectory() as folder:
        for command in (RUN, f"run --random {SHAPE} --trace run.json", "manual"):
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run([DISTATTN, *command.split()], cwd=folder, stdout=writing, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
            os.close(writing)
            left = [name for name in os.listdir(folder) if "partial" in name]
            assert done.returncode == 3 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
            assert not left, left


def files_are_full():
    """Only of a pipe is it said that something is at its other end."""
    for option in ("--svg", "--trace", "--html"):
        code, errors, _ = ends(f"run --random {SHAPE} {option} /dev/full", "")
        assert code == 3 and "cannot write /dev/full (No space left on device): name another file" in errors, errors


for check in (files_are_full, nobody_reads_errors, output_is_lost, reader_has_gone):
    check()
    print(check.__name__, "fine")
