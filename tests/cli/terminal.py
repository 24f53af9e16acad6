#!/usr/bin/env python3
"""distattn on terminals: wide, narrow, dumb, without colours, and those of continuous integration.

usage: terminal.py DISTATTN
"""
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import unicodedata

DISTATTN = os.path.abspath(sys.argv[1])
WORK = "validate --ranks 1,2 --seq 33 --backend reference --schedule ring,burst --mask causal"
PLAN = "plan --seq 4K --heads 8 --head-dim 64 --ranks 4 --schedule ring,zigzag-ring --machine dgx-h100x8"


def on_terminal(command, columns, output=subprocess.DEVNULL, of_session=False, **variables):
    """What a terminal of that width got: of stderr, or of stdout where `output` is None. `of_session`: it is the one at
    which somebody has logged in."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    names = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "COLUMNS")}
    arguments = command if isinstance(command, list) else command.split()

    def take():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([DISTATTN, *arguments], stdin=slave, stdout=slave if output is None else output,
                               stderr=subprocess.DEVNULL if output is None else slave, env={**names, "TERM": "xterm", **variables},
                               start_new_session=of_session, preexec_fn=take if of_session else None)
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        text += piece
        if not piece:
            break
    process.wait(timeout=60)
    os.close(master)
    return text.decode()


def width(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def widest(text):
    return max(width(line) for part in text.split("\n") for line in part.split("\r"))


def progress_fits():
    for columns, variables in ((120, {}), (40, {}), (20, {}), (5, {}), (1, {}), (100, {"COLUMNS": "30"}),
                               (0, {"COLUMNS": "25"}), (0, {}), (60, {"COLUMNS": "none"})):
        text = on_terminal(WORK, columns, **variables)
        told = [value for value in (columns, int(variables.get("COLUMNS", "0").replace("none", "0"))) if value]
        assert widest(text) < min(told, default=80), (columns, variables, widest(text))
        assert "\r" in text or columns == 1, (columns, text)
        assert "\x1b" not in text, text
        assert text.endswith("\r") or not text or columns == 1, text[-80:]  # the line is empty in the end


def wrong(**variables):
    return on_terminal("plan --seq nothing", 80, **variables)


def terminals_that_cannot():
    assert "\x1b[31m" in wrong()
    for variables in ({"TERM": "dumb"}, {"TERM": ""}, {"NO_COLOR": "1"}, {"CI": "true"}):
        assert wrong(**variables).startswith("distattn: ") and "\x1b" not in wrong(**variables), variables
        text = on_terminal(WORK, 80, **variables)
        assert "\x1b" not in text, (variables, text)
        assert "NO_COLOR" in variables or "\r" not in text.replace("\r\n", "\n"), (variables, text)
    assert "\x1b[31m" in wrong(NO_COLOR="", CI="false")


def tables_fit():
    whole = subprocess.run([DISTATTN, *PLAN.split()], capture_output=True, text=True, timeout=60).stdout
    assert widest(whole) > 100
    assert on_terminal(PLAN, 400, None).replace("\r\n", "\n") == whole
    for columns in (120, 80, 40, 20):
        for command in (PLAN, "info"):
            lines = on_terminal(command, columns, None).replace("\r\n", "\n").split("\n")
            head = next(i for i, line in enumerate(lines) if line.startswith(("kind", "schedule")))
            text_below = [i for i, line in enumerate(lines) if line.startswith("elements sent")]
            lines = lines[head : min(text_below, default=len(lines))]
            assert max(map(width, lines)) <= columns, (command, columns, max(lines, key=width))
        text = on_terminal(PLAN, columns, None)
        assert all(word in text for word in whole.split("\n")[0].split() if columns >= 40), (columns, text)


def lines_fit():
    """Those of every command, results and messages; JSON is for programs, and a pipe has no width."""
    shape = "--seq 96 --heads 2 --head-dim 16"
    run = f"run --random {shape} --schedule ring --ranks 2 --threads 1 --check --backward -q"
    bench = f"bench {shape} --schedule ring,burst --ranks 2 --threads 1 -n 1 -q"
    results = (run, bench, WORK + " -q", "info", "info --matrix", "info --why-this-launcher", "--version", PLAN + " -q",
               f"show {shape} --schedule ring --ranks 16", f"show {shape} --schedule burst --ranks 4 --backward -v")
    long = ["plan", "--seq", "1K", "--mask", "x" * 70 + " " + "y" * 30]
    messages = ("run --random --seq 96 --heads 2 --head-dim 16 --schedule nothing", ["plan", "a b " * 60], long,
                PLAN + ",balanced --mask full -v")
    for columns in (120, 80, 40, 20):
        for command, output in [(each, None) for each in results] + [(each, subprocess.DEVNULL) for each in messages]:
            text = on_terminal(command, columns, output).replace("\x1b[31m", "").replace("\x1b[0m", "")
            assert text.strip() and widest(text) <= columns, (command, columns, widest(text), text)
    assert "|" not in on_terminal(bench, 80, None), "a table is broken within its cells"
    piped = subprocess.run([DISTATTN, *messages[0].split()], capture_output=True, text=True, timeout=60)
    assert piped.stderr.count("\n") == 1 and widest(piped.stderr) > 120, piped
    narrow = on_terminal(messages[0], 40).replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\r", "")
    assert "".join(narrow.split()) == "".join(piped.stderr.split()), (narrow, piped.stderr)
    assert all(line.startswith("  ") for line in narrow.rstrip("\n").split("\n")[1:]), narrow
    objects = on_terminal(run + " --json", 20, None).replace("\r\n", "\n")
    assert json.loads(objects)["ranks"] == 2 and widest(objects) > 20, objects


def launchers_terminals_are_none():
    """Open MPI gives its ranks pseudo-terminals, whatever its own output goes to; that of srun --pty is one."""
    by_mpirun = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    by_hand = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    whole = subprocess.run([DISTATTN, *PLAN.split()], capture_output=True, text=True, timeout=60).stdout
    for variables in (by_mpirun, by_hand):
        assert on_terminal(PLAN, 40, None, **variables).replace("\r\n", "\n") == whole
        text = on_terminal(WORK, 40, **variables)
        assert "\r" not in text.replace("\r\n", "\n") and "\x1b" not in text, text
        assert on_terminal("plan --seq nothing", 20, **variables).count("\n") == 1
        assert widest(on_terminal("run --help", 200, None, **variables)) <= 80
        assert widest(on_terminal(PLAN, 40, None, True, **variables)) <= 40


def what_is_asked_for_is_written():
    """A table in Markdown is one wherever it goes."""
    bench = "bench --seq 96 --heads 2 --head-dim 16 --schedule ring,burst --ranks 2 --threads 1 -n 1 -q"
    for columns in (200, 80, 20):
        lines = on_terminal(bench + " -o md", columns, None).replace("\r\n", "\n").rstrip("\n").split("\n")
        assert len(lines) == 4 and all(line[0] == line[-1] == "|" for line in lines), lines


def messages_end_progress():
    """Ctrl-C says why on a line of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    names = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS")}
    process = subprocess.Popen([DISTATTN, "validate", "-v"], stdin=slave, stdout=subprocess.DEVNULL, stderr=slave,
                               start_new_session=True, env={**names, "TERM": "xterm", "NO_COLOR": "1"},
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    text = ""
    while "proved" not in text:
        text += os.read(master, 65536).decode()
    os.write(master, b"\x03")
    os.close(slave)
    while True:
        try:
            text += os.read(master, 65536).decode()
        except OSError:
            break
    assert process.wait(timeout=60) == 130
    os.close(master)
    before, message = text.split("distattn: interrupted")
    assert before.endswith("\r"), before[-200:]
    shown, blanks = before.rstrip("\r").split("\r")[-2:]
    assert not blanks.strip() and len(blanks) >= len(shown.rstrip()), (shown, blanks)
    assert message.endswith("\r\n"), message


def help_fits():
    """Lines of a terminal's width; very wide ones would be hard to read."""
    for columns in (200, 120, 80, 40, 20, 7, 1):
        for command in ("--help", "run --help", "plan --help-all", "--help-all"):
            text = on_terminal(command, columns, None).replace("\r\n", "\n")
            assert widest(text) <= min(columns, 120), (columns, command, widest(text))
    assert widest(on_terminal("run --help", 120, None)) > 80
    assert widest(on_terminal("run --help", 120, None, COLUMNS="50")) <= 50
    piped = subprocess.run([DISTATTN, "run", "--help"], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "COLUMNS": "200"}).stdout
    assert widest(piped) <= 80, "a pipe has no width"


def names_cannot_write():
    """What stands in a message is text, whatever a terminal would make of it."""
    for evil in ("a\x1b[2Jb", "a\u009b2Jb", "a\u202eb", "a\rb"):
        text = on_terminal(["show", "--program", evil], 200, NO_COLOR="1")
        assert not any(c in text.rstrip("\r\n") for c in "\x1b\u009b\u202e\r"), repr(text)


for check in (progress_fits, terminals_that_cannot, tables_fit, lines_fit, launchers_terminals_are_none,
              what_is_asked_for_is_written, messages_end_progress, help_fits, names_cannot_write):
    check()
    print(check.__name__, "fine")
