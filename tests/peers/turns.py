"""What comparisons with other systems share: processes that do what they are told, and options that choose systems."""

import json
import os
import subprocess


class Process:
    """A program that reads a word a line and answers each with a line of JSON. It answers once unasked: it is ready."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **{name: str(value) for name, value in environment.items()}})

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def answer(self):
        """RuntimeError with its last words if it has ended."""
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((self.process.stderr.read().strip().splitlines() or ["ended"])[-1])
        return json.loads(line)

    def close(self):
        """No more words come: it ends by itself."""
        self.process.stdin.close()

    def wait(self):
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def add_system_options(parser):
    parser.add_argument("--without", action="append", default=[], help="a system to leave out")
    parser.add_argument("--python", action="append", default=[], help="SYSTEM=INTERPRETER of a system's own environment")


def chosen_systems(parser, arguments, systems):
    """Those that take part, and by system the interpreter that was given for it."""
    pythons = dict(given.rsplit("=", 1) for given in arguments.python)
    if unknown := {*pythons, *arguments.without} - set(systems):
        parser.error(f"{unknown.pop()} is no system (unknown): choose one of {', '.join(systems)}")
    return [system for system in systems if system not in arguments.without], pythons


def of_ours(row, measured):
    """Seconds as a multiple of ours; None if ours was left out or did not run."""
    ours = measured.get("distattn")
    return row["seconds"] / ours["seconds"] if ours else None


def ratio_text(ratio):
    return "–" if ratio is None else f"{ratio:.2f} x"
