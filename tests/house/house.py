"""What the tests of the house share: where things are, and how to run them."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["DISTATTN_SOURCE"])
BUILD = pathlib.Path(os.environ["DISTATTN_BUILD"])
CMAKE = os.environ["CMAKE"]


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(0)


def fail(message):
    print(f"FAILED: {message}")
    sys.exit(1)


def expect(condition, message):
    if not condition:
        fail(message)


def run(*command, **options):
    """The finished process, its stdout and stderr together as text."""
    print("$", *command, flush=True)
    return subprocess.run([str(part) for part in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def run_well(*command, **options):
    """As run(), but a failure of the command fails the test."""
    done = run(*command, **options)
    expect(done.returncode == 0, f"exit {done.returncode} from {command[0]}\n{done.stdout}")
    return done.stdout
