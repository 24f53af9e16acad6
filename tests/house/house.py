"""What the tests of the house share: where things are, and how to run them."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["DISTATTN_SOURCE"])
BUILD = pathlib.Path(os.environ["DISTATTN_BUILD"])
CMAKE = os.environ["CMAKE"]
CODE = {".cpp", ".hpp", ".cu", ".cuh", ".c", ".h"}  # endings of what a compiler of C, C++ or CUDA reads


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


def cmake_options():
    """What a fresh configuration keeps in its cache: an old one would remember options that are gone."""
    with tempfile.TemporaryDirectory() as folder:
        run_well(CMAKE, "-S", SOURCE, "-B", folder, "-G", "Ninja")
        return set(re.findall(r"^(\w+):\w+=", (pathlib.Path(folder) / "CMakeCache.txt").read_text(), re.M))


def installed_files(*arguments):
    """What `cmake --install` puts where, relative to the prefix, with `lib` for any distribution's own library folder."""
    with tempfile.TemporaryDirectory() as prefix:
        run_well(CMAKE, "--install", BUILD, "--prefix", prefix, *arguments)
        root = pathlib.Path(prefix)
        files = [path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()]
    return sorted(re.sub(r"^lib64/|^lib/\w+-linux-gnu/", "lib/", file) for file in files)


def package_hints(manager):
    """What configuring suggests to install with "spack" or "conda" for packages that are missing."""
    column = {"spack": -2, "conda": -1}[manager]
    texts = [path.read_text() for name in ("CMakeLists.txt", "*.cmake") for path in SOURCE.rglob(name)
             if not path.is_relative_to(BUILD) and not path.is_relative_to(SOURCE / "tests")]
    calls = re.findall(r"^distattn_(?:option|require)\((.*?)\)$", "\n".join(texts), re.M | re.S)
    return {package for call in calls for package in shlex.split(call)[column].split()}
