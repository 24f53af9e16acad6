#!/usr/bin/env python3
"""Pages of show and plan that cannot be written: the right exit code, one clear line, nothing left behind; those of run
are in bad_input.py.

usage: bad_pages.py DISTATTN
"""
import json
import os
import sys
import tempfile

from bad_input import ENVIRONMENT, SHAPE, USAGE, Checker

PAGE = (["show", *SHAPE, "--ranks", "2"], ["plan", *SHAPE, "--ranks", "2"])
MACHINE = {"name": "box", "nodes": 1, "ranks_per_node": 4, "flops_per_s": {"fp32": 1e12}, "memory_bytes": 1e9, "cores": 0,
           "near": {"bytes_per_s": 1e10, "latency_s": 1e-6}, "far": {"bytes_per_s": 1e10, "latency_s": 1e-6, "per": "rank"}}
INPUTS = {"seen.json": json.dumps([{"q": [0, 64], "k": [0, 64], "diff": [0, None]}]), "box.json": json.dumps(MACHINE),
          "given.toml": "ranks = 2\n", "file": "not a folder", "program.json": '{"schema_version": 1, "ranks": "many"}'}

OPTIONS = [
    *([*command, "--html", ""] for command in PAGE),
    *([*command, "--memory", "1", "--schedule", "ring", "--html", "page.html"] for command in PAGE),
    *([*command, "--machine", "no-such-machine", "--html", "page.html"] for command in PAGE),
    ["plan", *SHAPE, "--ranks", "5", "--schedule", "ulysses", "--html", "page.html"],
    ["plan", "--paper", "distflashattn", "--html", "page.html"],
    ["plan", "--step", "llama-7b", "--machine", "dgx-a100x2", "--seq", "64K", "--ranks", "16", "--html", "page.html"],
    ["show", "--program", "program.json", "--html", "page.html"],
    ["validate", *SHAPE, "--html", "page.html"],
]


def main():
    checker = Checker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for name, text in INPUTS.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        os.symlink("seen.json", os.path.join(folder, "link.html"))
        os.symlink("itself", os.path.join(folder, "itself"))
        for arguments in OPTIONS:
            checker.check(arguments, USAGE, folder, "options")
        for command in PAGE:
            read = [*command, "--mask", "seen.json", "--machine", "box.json", "--config", "given.toml"]
            for page, name in (("./seen.json", "seen.json"), ("box.json", "box.json"), ("given.toml", "given.toml"),
                               ("link.html", "seen.json")):
                checker.check([*read, "--html", page], USAGE, folder, "a page in place of input",
                              says=f"would be overwritten (it is read as {name})")
            for out in (".", "file/below", "/proc/none/such", "itself", "itself/below.html"):
                checker.check([*command, "--html", out], ENVIRONMENT, folder, "a page that cannot be",
                              says=f"cannot write {out} (")
        checker.check(["show", "--program", "program.json", "--html", "./program.json"], USAGE, folder,
                      "a page in place of a program", says="would be overwritten (it is read as program.json)")
    print(f"{checker.passed} passed, {checker.failed} failed")
    sys.exit(1 if checker.failed else 0)


if __name__ == "__main__":
    main()
