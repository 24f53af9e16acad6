"""Every case of every test program is run by some test, and every test runs a case.

Cases that are hidden ("[.long]") are run by tests of another configuration, which are asked for too.
"""

import json
import pathlib
import subprocess

from house import BUILD, expect, run_well

PROGRAMS = {path.name for path in (BUILD / "bin").glob("test_*")}


def listed(program, arguments):
    """Names of the cases that these arguments select. Catch2 2 ends with their number, Catch2 3 with 0."""
    done = subprocess.run([program, "--list-test-names-only", *arguments], text=True, capture_output=True, timeout=60,
                          check=False)
    expect(not done.stderr, f"{program.name} lists no cases: {done.stderr}")
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def runs():
    """Of each test that ctest knows: its program and what that is given."""
    found = json.loads(run_well("ctest", "--test-dir", BUILD, "-C", "slow", "--show-only=json-v1"))
    for test in found["tests"]:
        command = test.get("command", [])
        for at, word in enumerate(command):
            if pathlib.PurePath(word).name in PROGRAMS:
                yield test["name"], pathlib.Path(word), command[at + 1:]
                break


def missed(all_cases, run_cases):
    return sorted(name for name in all_cases if name not in run_cases)


expect(missed({"a", "b"}, {"a"}) == ["b"], "a case that nobody runs goes unnoticed")
run, tests = {}, 0
for test, program, arguments in runs():
    cases = listed(program, arguments)
    expect(cases, f"{test} runs no case")
    left_out = [argument[1:] for argument in arguments if argument.startswith("~")]  # whoever adds the test says why
    run.setdefault(program, set()).update(cases, *(listed(program, [pattern]) for pattern in left_out))
    tests += 1
for program, cases in run.items():
    everything = listed(program, []) | listed(program, ["[.]"])
    expect(not (left := missed(everything, cases)), f"no test runs these cases of {program.name}: {left}")
expect(len(run) > 10, f"only {len(run)} programs were found in {BUILD}")
print(f"{tests} tests run all {sum(map(len, run.values()))} cases of {len(run)} programs")
