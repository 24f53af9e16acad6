#!/usr/bin/env python3
"""--help and --help-all of every command: their size, their headings, and that nothing is missing from them.

usage: help_texts.py DISTATTN
"""
import os
import re
import subprocess
import sys

DISTATTN = os.path.abspath(sys.argv[1])
HEADINGS = ["problem", "mask", "schedule", "input", "device", "output"]
MOST_LINES, MOST_COLUMNS = 70, 80

SHAPE = "--seq --seq-kv --batch --heads --kv-heads --head-dim --dtype --wire --scale --softcap --alibi --dropout --dropout-seed --max-logit"
MASK = "--mask --window --global-keys --sinks --cu-seqlens --documents"
SCHEDULE = "--schedule --mode --node-size --ahead --ranks --memory --machine"
DEVICE = "--backend --transport --bootstrap --threads --timeout"
INPUT = "--q --k --v --do --tensors --random --seed"
# What users and scripts were promised of each command; more may be added, nothing goes.
PROMISED = {
    "run": f"{SHAPE} {MASK} {SCHEDULE} {DEVICE} {INPUT} --sink-logits --backward -n -w --out --check --trace --svg --html --program --json",
    "validate": f"{SHAPE} {MASK} {SCHEDULE} {DEVICE} --sink-logits --backward --seed --json",
    "plan": f"{SHAPE} {MASK} {SCHEDULE} --backward --paper --step --html --json",
    "show": f"{SHAPE} {MASK} {SCHEDULE} --backward --program --format --html",
    "bench": f"{SHAPE} {MASK} {SCHEDULE} {DEVICE} --sink-logits --backward -n -w -c -o --json --min-gflops --max-ratio-to-prediction "
             "--calibrate --kernel",
    "step": f"--layers --hidden --ffn --vocab --seq --heads --kv-heads --steps --checkpoint --text --verify --json {MASK} "
            f"{SCHEDULE} {DEVICE}",
    "info": "--matrix --json",
    "completion": "",
    "manual": "",
    "": "-q -v --config --version",
}


def output(*arguments):
    done = subprocess.run([DISTATTN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, (arguments, done.returncode, done.stderr)
    return done.stdout


def groups_of(text):
    """heading -> the options below it, each as often as it stands there."""
    groups = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            assert heading[1] not in groups, (heading[1], text)
            options = groups[heading[1]] = []
        elif names := re.match(r"  (-[\w-]+(?:,-[\w-]+)*)", line):
            options += names[1].split(",")
    return groups


def everyday(command):
    text = output(*command, "--help")
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES, (command, len(lines))
    assert max(map(len, lines)) <= MOST_COLUMNS, (command, max(lines, key=len))
    assert not re.search("Excludes|Needs|REQUIRED", text), text
    more = re.search(r"--help-all shows (\d+) more options", lines[-1])
    assert more, lines[-1]
    return text, int(more[1])


def check_groups(command, groups):
    assert list(groups) == [each for each in HEADINGS if each in groups], (command, list(groups))
    assert all(groups.values()), (command, groups)
    options = [option for below in groups.values() for option in below]
    assert len(options) == len(set(options)), (command, sorted(options))
    assert not set(PROMISED[command].split()) - set(options), (command, set(PROMISED[command].split()) - set(options))
    return set(options)


def manual_sections():
    manual = output("manual").replace("\\-", "-")
    sections = dict(re.findall(r"^\.SS distattn (\S+)\n(.*?)(?=^\.S[SH])", manual, re.M | re.S))
    sections[""] = re.search(r"^\.SH OPTIONS OF ALL COMMANDS\n(.*?)(?=^\.SH)", manual, re.M | re.S)[1]
    return sections


def check_manual(command, groups, section):
    """The same options below the same headings."""
    told = dict(re.findall(r"^\.PP\n\.I (\w+)\n(.*?)(?=^\.PP|\Z)", section, re.M | re.S))
    assert list(told) == list(groups), (command, list(told))
    for heading, below in groups.items():
        assert re.findall(r"\\fB(-.*?)\\fR", told[heading]) == below, (command, heading)


def of_commands():
    sections = manual_sections()
    assert set(sections) == set(PROMISED), set(sections)
    for command in filter(None, PROMISED):
        text, more = everyday([command])
        groups, shown = groups_of(output(command, "--help-all")), groups_of(text)
        options = check_groups(command, groups)
        for heading, below in shown.items():
            assert below == [option for option in groups[heading] if option in below], (command, heading)
        described = [name for name in options if name.startswith("--") or name in ("-n", "-w", "-o")]
        seen = {name for below in shown.values() for name in below}
        assert more == len([name for name in described if name not in seen]), (command, more)
        assert {"--help", "--help-all"} <= seen, command
        check_manual(command, groups, sections[command])


def of_the_top():
    text, more = everyday([])
    groups = groups_of(text)
    assert not groups.pop("commands") and re.findall(r"^  (\w+) ", text, re.M) == list(filter(None, PROMISED)), text
    check_groups("", groups)
    check_manual("", groups, manual_sections()[""])
    every = output("--help-all")
    for command in filter(None, PROMISED):
        whole = output(command, "--help-all").rsplit("\n\n", 1)[0]
        assert whole in every, command
    count = lambda page: len(re.findall(r"^  (?:-|\w+\|)", page, re.M))
    assert more == count(every) - count(text), (more, count(every), count(text))


def anywhere():
    """Both at once is all; neither is moved by what stands beside it."""
    assert output("run", "--help", "--help-all") == output("run", "--help-all") == output("run", "--seq", "4", "--help-all")
    for wrong in (["--mask", "nothing"], ["--seq", "-1"], ["--spin"], ["--schedule", "a,b"], ["--config", "/none"]):
        assert output("run", *wrong, "--help") == output("run", "--help", *wrong) == output("run", "--help"), wrong
        assert output("run", *wrong, "--help-all") == output("run", "--help-all"), wrong
    assert output("completion", "--help").startswith("A completion script"), "needs no shell"


for check in (of_commands, of_the_top, anywhere):
    check()
    print(check.__name__, "fine")
