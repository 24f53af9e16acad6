#!/usr/bin/env python3
"""Every kind of bad input ends with the right exit code and one clear line, within seconds, and leaves nothing behind.

usage: bad_input.py DISTATTN
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from bad_files import bad_npy, bad_safetensors, npy

USAGE, ENVIRONMENT = 2, 3


BAD_TOML = (("no_such_option = 3\n", "an unknown one",
             "line 1 (no_such_option is not an option of run): write it below the [command]"),
            ("[bench]\nmin-gflop = 3\n", "one of another command, misspelt",
             "line 2 (min-gflop is not an option of bench)"),
            ("[bench]\n[train]\n", "of no command", "line 2 (no command is called train"),
            ("ranks = 2\n[run]\nranks = 2\n", "one twice", "ranks is given twice"),
            ("\nwindow = [1,\n  2\n", "a list without end", "end-of-file"),
            ("seed = 2026-01-01\n", "a date", "line 1 (an option takes text"),
            ("\ncheck = 5\n", "a number for a flag", "line 2 (check is true or false"),
            *((f"{name}\n", f"what belongs on the command line: {name}", "is an option of the command line alone")
              for name in ('config = "x"', "help = true", "help-all = true", "version = true")),
            ("json = -1\n", "a negative one", "line 1 (json is true or false"),
            ('out = "a\\u0000b"\n', "a zero byte", "line 1 (an option holds no zero byte"),
            ('check = "yes"\n', "text for a flag", "line 1 (check is true or false"))
SHAPE = ["--seq", "64", "--heads", "4", "--head-dim", "8"]
RUN = ["run", "--random", *SHAPE]
BENCH = ["bench", *SHAPE]

OPTIONS = [
    (["no-such-command"], USAGE),
    ([], USAGE),
    ([*RUN, "--no-such-option"], USAGE),
    ([*RUN, "--ranks", "four"], USAGE),
    ([*RUN, "--ranks", "0"], USAGE),
    ([*RUN, "--ranks", "-1"], USAGE),
    ([*RUN, "--ranks", "99999999999999999999"], USAGE),
    ([*RUN, "--ranks", "2,4"], USAGE),
    ([*RUN, "--threads", "0"], USAGE),
    ([*RUN, "--dtype", "fp8"], USAGE),
    ([*RUN, "--scale", "1e39"], USAGE),
    ([*RUN, "--wire", "int8"], USAGE),
    ([*RUN, "--schedule", "spiral"], USAGE),
    ([*RUN, "--schedule", "mesh:2x-1x3"], USAGE),
    ([*RUN, "--schedule", "mesh:0x0x0"], USAGE),
    ([*RUN, "--schedule", "mesh:99999999999x1x1"], USAGE),
    ([*RUN, "--schedule", "usp:many"], USAGE),
    ([*RUN, "--schedule", "ring:extra"], USAGE),
    ([*RUN, "--ranks", "8", "--schedule", "ulysses"], USAGE),
    ([*RUN, "--ranks", "6", "--schedule", "mesh:2x2x2"], USAGE),
    ([*RUN, "--ranks", "4", "--schedule", "ring/zigzag-ring", "--backward"], USAGE),
    ([*RUN, "--ranks", "4", "--schedule", "balanced", "--mask", "full"], USAGE),
    ([*RUN, "--mask", "diagonal"], USAGE),
    ([*RUN, "--mask", "prefix:-3"], USAGE),
    ([*RUN, "--mask", "prefix:8", "--window", "4,4"], USAGE),
    ([*RUN, "--mask", "block-causal:8", "--cu-seqlens", "0,64"], USAGE),
    ([*RUN, "--mask", "no-such-file.json"], USAGE),
    ([*RUN, "--window", "3"], USAGE),
    ([*RUN, "--window", "-2,0"], USAGE),
    ([*RUN, "--window", "4Q,0"], USAGE),
    ([*RUN, "--sinks", "-1"], USAGE),
    ([*RUN, "--ranks", "2", "--ahead", "1"], USAGE),
    ([*RUN, "--ranks", "2", "--node-size", "2", "--ahead", "1"], USAGE),
    ([*RUN, "--cu-seqlens", "0,70"], USAGE),
    ([*RUN, "--cu-seqlens", "1,64"], USAGE),
    ([*RUN, "--cu-seqlens", "0,40,20,64"], USAGE),
    ([*RUN, "--cu-seqlens", "@lengths"], USAGE),
    ([*RUN, "--cu-seqlens", "0,64", "--documents", "pile"], USAGE),
    ([*RUN, "--documents", "encyclopaedia"], USAGE),
    ([*RUN, "--backend", "abacus"], USAGE),
    ([*RUN, "--backend", "reference", "--graphs"], USAGE),
    (["bench", "--calibrate", "--backend", "reference", "--graphs"], USAGE),
    (["bench", "--backend", "reference", "--kernel", "attend", "--seq", "64", "--graphs"], USAGE),
    ([*RUN, "--transport", "pigeon"], USAGE),
    ([*RUN, "--mode", "sideways"], USAGE),
    ([*RUN, "--timeout", "-5"], USAGE),
    ([*RUN, "-n", "0"], USAGE),
    ([*RUN, "--q", "q.npy"], USAGE),
    ([*RUN, "--tensors", "t.safetensors"], USAGE),
    (["run"], USAGE),
    (["run", "--random"], USAGE),
    (["run", "--q", "missing.npy", "--k", "missing.npy", "--v", "missing.npy"], USAGE),
    *(([*RUN, option, ""], USAGE) for option in ("--out", "--svg", "--trace", "--html", "--machine", "--config",
                                              "--schedule")),
    (["run", "--tensors", ""], USAGE),
    (["run", "--q", "", "--k", "k.npy", "--v", "v.npy"], USAGE),
    ([*RUN, "--svg", "same", "--trace", "./same"], USAGE),
    ([*RUN, "--html", "same", "--trace", "./same"], USAGE),
    ([*RUN, "--html", "same", "--svg", "same"], USAGE),
    ([*RUN, "--out", "new", "--svg", "./new/o.npy"], USAGE),
    ([*RUN, "--out", "new", "--html", "./new/lse.npy"], USAGE),
    ([*RUN, "--dtype", "fp64", "--wire", "fp32"], USAGE),
    (["run", "--random", "--seq", "64", "--heads", "4", "--kv-heads", "3", "--head-dim", "8"], USAGE),
    (["run", "--random", "--seq", "64", "--heads", "4", "--head-dim", "7"], USAGE),
    (["run", "--random", "--seq", "64", "--heads", "4", "--head-dim", "584"], USAGE),
    (["run", "--random", "--seq", "-64", "--heads", "4", "--head-dim", "8"], USAGE),
    (["run", "--random", "--seq", "64Q", "--heads", "4", "--head-dim", "8"], USAGE),
    (["run", "--random", "--seq", "9223372036854775807", "--heads", "4", "--head-dim", "8"], USAGE),
    ([*BENCH, "-o", "pdf"], USAGE),
    ([*BENCH, "-o", "md", "--json"], USAGE),
    ([*BENCH, "-n", "0"], USAGE),
    ([*BENCH, "--ranks", "1,0"], USAGE),
    ([*BENCH, "--ranks", "4-2"], USAGE),
    ([*BENCH, "--schedule", "ring,,burst"], USAGE),
    ([*BENCH, "--schedule", "ring,spiral"], USAGE),
    ([*BENCH, "--ranks", "5", "--schedule", "ulysses"], USAGE),
    ([*BENCH, "--schedule", "ring", "--memory", "1"], USAGE),
    ([*BENCH, "--min-gflops", "much"], USAGE),
    ([*BENCH, "--min-gflops", "-1"], USAGE),
    ([*BENCH, "--max-ratio-to-prediction", "0"], USAGE),
    ([*BENCH, "--machine", "no-such-machine"], USAGE),
    ([*BENCH, "--machine", "this", "--calibrate"], USAGE),
    ([*BENCH, "--kernel", "attend", "--ranks", "2"], USAGE),
    ([*BENCH, "--backend", "abacus"], USAGE),
    (["bench", "--kernel", "spin"], USAGE),
    (["bench", "--kernel", "attend", "--seq", "0"], USAGE),
    (["bench", "--kernel", "attend", "--head-dim", "7"], USAGE),
    (["bench"], USAGE), (["plan", *SHAPE, "--ranks", "4", "--machine", "no-such-machine"], USAGE),
    (["plan", *SHAPE, "--ranks", "4", "--machine", "/dev/zero"], USAGE),
    # Said before thousands of programs are built, which would take longer than a check may.
    (["plan", "--seq", "1M", *SHAPE[2:], "--ranks", "4096", "--schedule", "ring", "--machine", "dgx-h100x8"], USAGE),
    (["plan", "--seq", "1M", *SHAPE[2:], "--ranks", "1024", "--schedule", "auto", "--machine", "dgx-h100x8"], USAGE),
    (["show", *SHAPE, "--ranks", "65536", "--schedule", "ring"], USAGE),
    (["plan", "--step", "llama-7b", "--paper", "distflashattn"], USAGE),
    (["plan", "--step", "--paper", "distflashattn", "--checkpoint", "layer"], USAGE),
    (["plan", "--step", "llama-7b", "--machine", "dgx-a100x2", "--seq", "64K", "--ranks", "16", "--schedule", "ring",
      "--memory", "1M"], USAGE),
    (["validate", *SHAPE, "--ranks", "2", "--schedule", "ring", "--memory", "100", "-q"], USAGE),
    (["validate", *SHAPE, "--ranks", "2", "--schedule", "ring", "--machine", "no-such-machine", "-q"], USAGE),
    (["show", *SHAPE, "--ranks", "4", "--schedule", "ring", "--format", "hologram"], USAGE),
    (["info", "--config", "no-such-file.toml"], USAGE),
]

STEP = ["plan", "--seq", "1K", "--ranks", "2", "--machine", "dgx-a100x2", "--step"]
# What is said counts as much: options, words of the error.
WORDED = [
    (["plan", *SHAPE[2:], "--seq", "-5"], "--seq -5 (negative)"),
    (["plan", *SHAPE, "--ranks", "4,-2"], "--ranks -2 (negative)"),
    *[([command, *given], words) for command in ("validate", "bench", "plan") for given, words in (
        (["--heads", "1,,2"], "--heads 1,,2 (an empty item)"),
        (["--heads", "1,2,"], "--heads 1,2, (an empty item)"),
        (["--seq", "4-2"], "--seq 4-2 (the range runs backwards)"),
        (["--head-dim", "1-2*0"], "--head-dim 1-2*0 (the range never ends)"),
        (["--batch", "1-2*1"], "--batch 1-2*1 (the range never ends)"),
        (["--seq-kv", "8-"], "--seq-kv 8- (not a range)"),
        (["--seq", "2-8*"], "--seq 2-8* (not a range)"),
        (["--kv-heads", "1,99999999999G"], "--kv-heads 99999999999G (too large"),
        (["--value-dim", "8,0"], "--value-dim 0 (out of range)"),
        (["--heads", "1-1M"], "--heads 1-1M (more than 10000 values)"),
        (["--heads", "1-200", "--seq", "1-200", "--head-dim", "8"], "more than 10000 shapes"),
        (["--dtype", "fp32,fp8"], "--dtype fp8 (unknown)"),
        (["--wire", "fp32,"], "--wire fp32, (an empty item)"),
        (["--mode", "serial,fast"], "--mode fast (unknown)"),
        (["--mask", "causal,diagonal"], "--mask diagonal (unknown)"),
        (["--mask", "window:3:x"], "--mask window x (not a size)"),
        (["--mask", "window:-2"], "--mask window -2 (negative)"),
        ([*SHAPE, "--mask", "window:3", "--window", "3,0"], "--window with --mask window:3"),
        *(([*SHAPE, "--mask", mask, *changed], f"{changed[0]} with --mask {mask} (which says itself what each query sees)")
          for mask, changed in (("prefix:3", ["--window", "3,0"]), ("block-causal:4", ["--global-keys", "2"]),
                                ("prefix:3", ["--cu-seqlens", "0,64"]), ("prefix:3", ["--documents", "pile"]))),
        (["--mask", "causal*2"], "--mask causal*2 (layers are counted where masks share a layout)"),
        (["--mask", "causal", "--mask", "causal,full"], "--mask causal,full (a list"),
        *((["--mask", "causal", "--mask", f"full*{n}"], f"--mask full*{n} (how many layers") for n in ("0", "1e308")),
        (["--mask", "causal", "--mask", "full*nan"], "the layers of --mask full nan (not a finite number)"),
        (["--mask", "causal", "--mask", "*2"], "--mask '' (an empty value says nothing)"),
        ([*SHAPE, "--mask", "causal", "--mask", "no-such-file.json*2"], "no-such-file.json"),
        (["--mask", "causal,prefix:x"], "--mask prefix x (not a size)"),
        ([*SHAPE, "--mask", "causal,no-such-file.json"], "no-such-file.json"))],
    (["plan", *SHAPE, "--ranks", "4", "--schedule", "auto", "--memory", "1K"], "distattn: no schedule fits 1.00 KiB"),
    ([*STEP, "llama-7b", "--dtype", "bf16,fp32"], "--dtype has 2 values"),
    (["--json", "info"], "write it behind: distattn info --json"),
    (["-n", "bench"], "write it behind: distattn bench -n"),
    (["--spin", "info"], "--spin (not an option of distattn info)"),
    ([*RUN, "--check=-3"], "--check -3 (neither true nor false)"),
    ([*RUN, "--backward=yes"], "--backward yes (neither true nor false)"),
    ([*RUN, "--config", "."], "--config . (a folder)"),
    ([*RUN, "--config", "/dev/zero"], "longer than 1 MiB"),
    ([*RUN, "--config", "no-such-file.toml"], "--config no-such-file.toml (No such file"),
    ([*BENCH, "-n="], "-n = (not a size)"),
    ([*STEP, "layers=4,hidden=256,heads=4,layers=5"], "'layers' is given twice"),
    ([*STEP, "layers=4,hidden=256,heads=4,"], "an empty item"),
    ([*STEP, "layers=4,hidden=2Q,heads=4"], "model field hidden 2Q (not a size)"),
    ([*STEP, "layers=4,hidden=256,heads"], "model field 'heads' (no number)"),
    ([*STEP, "layers=4,hidden=256,heads=0"], "model field heads 0 (out of range)"),
    (["bench", "--calibrate", "--ranks", "2"], "--ranks with --calibrate alone"),
    (["bench", "--calibrate", "--timeout", "2"], "--timeout with --calibrate alone"),
    (["bench", "--calibrate", "--heads", "2,4"], "--heads has 2 values"),
    (["bench", "--calibrate", "--mask", "causal", "--mask", "full"], "--mask with --calibrate alone"),
    ([*STEP, "llama-7b", "--mask", "causal", "--mask", "full"], "--mask has 2 values"),
    (["bench", "--kernel", "attend", "--dtype", "fp32,bf16"], "--dtype has 2 values"),
    (["bench", "--calibrate", "--min-gflops", "1"], "--min-gflops with --calibrate alone"),
    (["bench", "--calibrate", "-c"], "--check with --calibrate alone"),
    (["bench", "--calibrate", "-n", "3"], "-n with --calibrate alone"),
    (["bench", "--calibrate", "-o", "csv"], "-o csv with --calibrate alone"),
    (["bench", "--kernel", "copy,merge", "--dtype", "bf16"], "--dtype with --kernel copy,merge"),
    (["bench", "--kernel", "copy", "--seq", "64"], "--seq with --kernel copy"),
    (["bench", "--kernel", "spin"], "choose one of all, attend"),
    ([*RUN, "--schedule", "x" * 100000], "…"),
    ([*RUN, "--seq-kv", "ü" * 50000 + "end"], "end (not a size): "),
    (["show", *SHAPE, "--schedule", "ring", "--ranks", "2", "--memory", "1"], "a rank (--memory allows 1 B)"),
    (["show", "--program", "p.json", "--machine", "nonsense"], "--machine nonsense with --program p.json"),
    (["show", "--program", "p.json", "--machine", "dgx-h100x8", "--format", "json"], "--machine dgx-h100x8 with"),
    (["show", "--schedule", "ring", "--ranks", "65", "--machine", "dgx-h100x8", "--format", "svg"], "65 ranks do not fit"),
]


def unusable(binary):
    """What `info` says is there but cannot be used, as options: a GPU's backend where there is no GPU."""
    info = json.loads(subprocess.run([binary, "info", "--json"], capture_output=True, check=True).stdout)
    return [(option, entry["name"]) for option, kind in (("--backend", "backends"), ("--transport", "transports"))
            for entry in info[kind] if not entry["usable"]]


class Checker:
    def __init__(self, binary):
        self.binary, self.passed, self.failed = os.path.abspath(binary), 0, 0

    def check(self, arguments, code, folder, what, says=""):
        before = sorted(os.listdir(folder))
        problem = ""
        try:
            result = subprocess.run([self.binary, *arguments], cwd=folder, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
            lines = result.stderr.decode(errors="replace").strip().splitlines()
            if result.returncode != code:
                problem = f"exit {result.returncode}, not {code}; {lines[:3]}"
            elif len(lines) != 1:
                problem = f"{len(lines)} lines instead of one clear line: {lines[:3]}"
            elif not re.search(r"\S \(.+\): \S|\S \(.+\)$", lines[0]):
                problem = f"not worded problem (why): suggestion: {lines[0]}"
            elif says not in lines[0]:
                problem = f"'{says}' is not in: {lines[0]}"
            elif result.stdout:
                problem = f"results on stdout: {result.stdout[:80]}"
        except subprocess.TimeoutExpired:
            problem = "still running after 20 seconds"
        if sorted(os.listdir(folder)) != before:
            problem += f" left behind: {sorted(set(os.listdir(folder)) - set(before))}"
        self.passed, self.failed = self.passed + (not problem), self.failed + bool(problem)
        if problem:
            print(f"FAILED {what}: distattn {' '.join(arguments)}\n  {problem}")


def main():
    checker = Checker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for arguments, code in OPTIONS:
            checker.check(arguments, code, folder, "options")
        for arguments, says in WORDED:
            checker.check(arguments, USAGE, folder, "options", says=says)
        for option, name in unusable(sys.argv[1]):
            checker.check([*RUN, option, name], ENVIRONMENT, folder, f"{name}, which cannot be used here")
        good = os.path.join(folder, "good.npy")
        npy(good)
        with open(os.path.join(folder, "o.npy"), "wb") as file, open(good, "rb") as array:
            file.write(array.read())
        with open(os.path.join(folder, "seen.json"), "w") as file:
            file.write('[{"q":[0,4],"k":[0,4],"diff":[0,null]}]')
        with open(os.path.join(folder, "given.toml"), "w") as file:
            file.write("ranks = 2\n")
        os.symlink("good.npy", os.path.join(folder, "link.svg"))
        arrays = ["run", "--q", "o.npy", "--k", "good.npy", "--v", "good.npy", "--mask", "seen.json",
                  "--config", "given.toml"]
        for places, read in ((["--out", "."], "o.npy"), (["--svg", "./good.npy"], "good.npy"),
                             (["--trace", "link.svg"], "good.npy"), (["--svg", "seen.json"], "seen.json"),
                             (["--trace", "./given.toml"], "given.toml"), (["--html", "link.svg"], "good.npy"),
                             (["--html", "./seen.json"], "seen.json")):
            checker.check([*arrays, *places], USAGE, folder, "results in place of input",
                          says=f"would be overwritten (it is read as {read})")
        bad = os.path.join(folder, "bad.npy")
        for name, write in bad_npy().items():
            write(bad)
            checker.check(["run", "--q", good, "--k", good, "--v", bad, "--out", "out"], USAGE, folder, f".npy: {name}")
        bad = os.path.join(folder, "bad.safetensors")
        for name, write in bad_safetensors().items():
            write(bad)
            checker.check(["run", "--tensors", bad, "--out", "out"], USAGE, folder, f".safetensors: {name}")
        with open(os.path.join(folder, "file"), "w") as file:
            file.write("not a folder")
        os.symlink("itself", os.path.join(folder, "itself"))
        for out in ("file", "file/below", "/proc/none/such", "itself", "itself/below"):
            checker.check([*RUN, "--out", out], ENVIRONMENT, folder, "an output folder that cannot be", says=f" {out} (")
        checker.check([*RUN, "--out", "out", "--svg", "itself/a.svg", "--check"], ENVIRONMENT, folder,
                      "a picture below a link to itself", says="cannot write itself/a.svg (")
        checker.check([*RUN, "--config", "itself"], USAGE, folder, "options in a link to itself", says="--config itself (")
        for out in (".", "file/below", "/proc/none/such"):
            for option in ("--svg", "--trace", "--html"):
                checker.check([*RUN, option, out, "--check"], ENVIRONMENT, folder, "a picture that cannot be")
        double = os.path.join(folder, "double.npy")
        npy(double, dtype="<f8", size=8)
        checker.check(["run", "--q", good, "--k", good, "--v", good, "--do", double, "--backward"], USAGE, folder,
                      "a float64 gradient", says="double.npy is float64")
        with open(os.path.join(folder, "mask.json"), "w") as file:
            file.write('[{"q":[0,64],"k":[0,64],"diff":[0,null]},{"q":[3,4],"k":[0,9],"diff":[0,null]}]')
        checker.check([*RUN, "--mask", "mask.json"], USAGE, folder, "bands that overlap")
        checker.check(["run", "--q", good, "--k", good, "--v", good, "--seed", "3"], USAGE, folder, "a seed of nothing")
        for content, name, says in BAD_TOML:
            with open(os.path.join(folder, "options.toml"), "w") as file:
                file.write(content)
            checker.check([*RUN, "--config", "options.toml"], USAGE, folder, f"options in a file: {name}", says=says)
        with open(os.path.join(folder, "deep.json"), "w") as file:
            file.write('{"schema_version":' + 200000 * '{"a":' + "1" + 200000 * "}" + "}")
        for deep in (["show", "--program"], ["plan", *SHAPE, "--ranks", "2", "--machine"], [*RUN, "--mask"]):
            checker.check([*deep, "deep.json"], USAGE, folder, "JSON without a bottom", says="nest more than 64 deep")
        one = '{"schema_version": 1, "ranks": "many"}'
        for text, says in ((one, "program.json: "), (f"[{one}]", "program.json: "), (f"[{one}", "program.json: not JSON"),
                           ("[]", "no program"),
                           ("[" * 200000 + "]" * 200000, "nest more than 64 deep")):
            with open(os.path.join(folder, "program.json"), "w") as file:
                file.write(text)
            for command in (["show"], ["run", "--random"]):
                checker.check([*command, "--program", "program.json"], USAGE, folder, "a malformed program", says=says)
    print(f"{checker.passed} passed, {checker.failed} failed")
    sys.exit(1 if checker.failed else 0)


if __name__ == "__main__":
    main()
