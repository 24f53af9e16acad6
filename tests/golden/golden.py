#!/usr/bin/env python3
"""What the command prints where nothing depends on the machine, compared with the files of this folder.

usage: golden.py DISTATTN            compare; a difference is shown
       golden.py DISTATTN --update   write the files anew: read their diff before you commit it
"""
import difflib
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def output(binary, command):
    never_calibrated = {**os.environ, "XDG_CACHE_HOME": str(HERE / "not-calibrated")}
    result = subprocess.run([binary, *shlex.split(command)], capture_output=True, text=True, cwd=HERE, env=never_calibrated)
    return f"$ distattn {command}\n{result.stdout}{result.stderr}exit {result.returncode}\n"


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    update = sys.argv[2:] == ["--update"]
    failed = 0
    cases = [line.split(maxsplit=1) for line in (HERE / "commands.txt").read_text().splitlines()
             if line and not line.startswith("#")]
    for name, command in cases:
        file, got = HERE / f"{name}.txt", output(binary, command)
        if update:
            file.write_text(got)
            continue
        expected = file.read_text() if file.exists() else ""
        if got != expected:
            failed += 1
            sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), got.splitlines(True), f"{name}.txt", "now"))
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
