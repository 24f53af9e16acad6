#!/usr/bin/env python3
"""--check: ordinary results are right on any number of ranks, whatever their magnitude; and what is off is seen where it
is, however little it weighs.

usage: check.py DISTATTN
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from array import array
from random import Random

DISTATTN = os.path.abspath(sys.argv[1])
NAMES = ("q", "k", "v", "do")


def write_npy(path, values, shape):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array("f", values).tobytes())


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    return array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def run(folder, *options):
    command = [DISTATTN, "run", *(word for name in NAMES for word in (f"--{name}", f"{name}.npy")), "--backward", "--check",
               "--json", "--threads", "1", *options]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=60)
    assert done.returncode in (0, 1), (options, done.returncode, done.stderr)
    printed = json.loads(done.stdout)
    errors = {**printed["error"], "parts": printed["error_parts"]}
    assert (done.returncode == 0) == all(each["ok"] for each in errors["parts"]), (done.returncode, errors)
    if done.returncode == 0:  # whole tensors are then right as well
        assert all(errors[name] is None or errors[name] <= errors["tolerance"] for name in ("o", "dq", "dk", "dv")), errors
    return done, errors


def right(folder, *options):
    done, errors = run(folder, *options)
    assert done.returncode == 0, (options, done.stderr, errors)
    return errors


def inputs(folder, shape, make):
    for name in NAMES:
        write_npy(os.path.join(folder, f"{name}.npy"), make(name, math.prod(shape)), shape)


def gaussian(seed, **scales):
    def make(name, count):
        random = Random(f"{seed} {name}")
        return [random.gauss(0, 1) * scales.get(name, 1) for _ in range(count)]
    return make


def ranks_and_magnitudes():
    """Scores from 0 to thousands, results from 1e-20 to 1e15, on 1 to 64 ranks."""
    with tempfile.TemporaryDirectory() as folder:
        for of_q, of_v, of_do in ((1, 1, 1), (1e-3, 1e-20, 1e-3), (4, 100, 1e-6), (16, 1, 1), (64, 1e15, 1e8), (1e3, 1, 1)):
            inputs(folder, (96, 2, 16), gaussian(1, q=of_q, k=min(of_q, 16), v=of_v, do=of_do))
            for ranks, schedule in ((1, "ring"), (2, "zigzag-ring"), (5, "ring/burst"), (16, "striped-ring"), (64, "ring"),
                                    (4, "balanced"), (6, "attention2d")):
                right(folder, "--ranks", str(ranks), "--schedule", schedule)
            for dtype in ("bf16", "fp16"):
                if dtype == "bf16" or of_v == 1:
                    right(folder, "--ranks", "4", "--schedule", "zigzag-ring", "--dtype", dtype)
            right(folder, "--ranks", "4", "--schedule", "zigzag-ring", "--wire", "bf16")


def kinds_of_inputs():
    """What gradients cancel in, and what sums cancel in."""
    shape, random = (64, 1, 32), Random(3)
    kinds = {
        "all the same": lambda name, count: [2.0] * count,
        "ones": lambda name, count: [1.0] * count,
        "signs in turn": lambda name, count: [(-1.0) ** (i // 32) for i in range(count)],
        "a half against the other": lambda name, count: [1.0 if name == "q" or i < count // 2 else -1.0 for i in range(count)],
        "a bias in the keys": lambda name, count: [random.gauss(0, 1) + (300 if name == "k" and i % 32 == 3 else 0)
                                                   for i in range(count)],
        "few that are large": lambda name, count: [random.gauss(0, 1) * (1000 if i % 97 == 0 else 1) for i in range(count)],
        "zeros": lambda name, count: [0.0] * count,
    }
    for kind, make in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            inputs(folder, shape, make)
            for options in ([], ["--window", "0,0"], ["--mask", "full"], ["--cu-seqlens", "0,1,2,40,64"],
                            ["--window", "5,-1", "--global-keys", "2"]):
                for ranks in ("1", "4", "7"):
                    try:
                        right(folder, "--ranks", ranks, "--schedule", "zigzag-ring", *options)
                    except AssertionError as error:
                        raise AssertionError(kind) from error


def padding():
    """Documents of padding, filled with something large, beside ordinary ones."""
    ordinary = gaussian(0)
    for pad in (4, 16, 64):
        with tempfile.TemporaryDirectory() as folder:
            inputs(folder, (60 + pad, 1, 64), lambda name, count: [*ordinary(name, 60 * 64), *[100.0] * (pad * 64)])
            for ranks in ("1", "3"):
                right(folder, "--cu-seqlens", f"0,60,{60 + pad}", "--ranks", ranks)


def equal_rows():
    """What every row rounds alike adds up over the others, and cancels in exact arithmetic."""
    with tempfile.TemporaryDirectory() as folder:
        for constants in ((.1, .1, .1, .1), (1, 0, .7, .3), (0, 1, .7, .3)):  # of q, k, v, do
            for tokens, dim in ((256, 64), (256, 128), (64, 256)):
                by_name = dict(zip(NAMES, constants))
                inputs(folder, (tokens, 1, dim), lambda name, count, by_name=by_name: [by_name[name]] * count)
                for ranks in (1, 4):
                    right(folder, "--mask", "full", "--ranks", str(ranks), "--schedule", "ring")


def roundings_that_happen():
    """A wire rounds where parts of results travel, and LSE is never of 16 bits."""
    shape = ("--random", "--seq", "96", "--heads", "2", "--head-dim", "16", "--threads", "1", "--check", "--json", "-q")

    def largest(part, *options):
        done = subprocess.run([DISTATTN, "run", *shape, *options], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return next(each for each in json.loads(done.stdout)["error_parts"] if each["result"] == part)["tolerance"]
    assert largest("o", "--wire", "bf16", "--ranks", "1") < 1e-4
    assert largest("o", "--wire", "bf16", "--ranks", "2", "--schedule", "ring") < 1e-4  # keys travel as they are
    assert largest("o", "--wire", "bf16", "--ranks", "2", "--schedule", "burst") > 1e-3
    assert largest("lse", "--dtype", "bf16", "--ranks", "2", "--schedule", "burst") < 1e-3


def attention(values, tokens, dim):
    """o and dv in float64, of one head and a causal mask."""
    q, k, v, do = ([row[i * dim:(i + 1) * dim] for i in range(tokens)] for row in (values[name] for name in NAMES))
    o, dv = [], [[0.0] * dim for _ in range(tokens)]
    for i in range(tokens):
        scores = [sum(a * b for a, b in zip(q[i], k[j])) / math.sqrt(dim) for j in range(i + 1)]
        weights = [math.exp(score - max(scores)) for score in scores]
        weights = [weight / math.fsum(weights) for weight in weights]
        o += [math.fsum(weight * v[j][x] for j, weight in enumerate(weights)) for x in range(dim)]
        for j, weight in enumerate(weights):
            for x in range(dim):
                dv[j][x] += weight * do[i][x]
    return o, [x for row in dv for x in row]


def relative(got, want):
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(got, want)) / math.fsum(b * b for b in want))


def denormals():
    """The error that is said is the error that there is, also of numbers that processors may take for zeros."""
    tokens, dim = 24, 16
    for name, result, place in (("v", "o", 0), ("do", "dv", 1)):
        for size in (1.0, 1e-30, 1e-36, 1e-38, 1e-40):
            with tempfile.TemporaryDirectory() as folder:
                inputs(folder, (tokens, 1, dim), gaussian(7, **{name: size}))
                done, errors = run(folder, "--out", "out")
                values = {each: read_npy(os.path.join(folder, f"{each}.npy")) for each in NAMES}
                want = attention(values, tokens, dim)[place]
                got = relative(read_npy(os.path.join(folder, f"out/{result}.npy")), want)
                assert math.isclose(errors[result], got, rel_tol=0.02, abs_tol=1e-7), (name, size, errors[result], got)
                ok = next(each["ok"] for each in errors["parts"] if each["result"] == result)
                assert ok if got < 1e-6 else not ok if got > 0.01 else True, (name, size, got, errors)
                assert done.returncode == 0 or not all(each["ok"] for each in errors["parts"]), done


def large_scores():
    """Scores of which fp32 holds few digits: results are as right as these are, and LSE is as near as its type lets it be."""
    for options in (["--scale", "1e6"], ["--scale", "-1e9", "--ranks", "5", "--schedule", "ring"]):
        done = subprocess.run([DISTATTN, "run", "--random", "--seq", "24", "--heads", "2", "--head-dim", "16", "--backward",
                               "--check", *options], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, (options, done.stderr)
    for tokens, of_q in ((1, 12345.678), (64, 12345.678), (64, 4096.0)):
        with tempfile.TemporaryDirectory() as folder:
            inputs(folder, (tokens, 1, 64), lambda name, count: [of_q if name in "qk" else 1.0] * count)
            for options in ([], ["--window", "0,0"], ["--mask", "full"]):
                for ranks in ("1", "3"):
                    right(folder, "--ranks", ranks, *options)
                    right(folder, "--ranks", ranks, "--backend", "reference", *options)
    with tempfile.TemporaryDirectory() as folder:
        inputs(folder, (64, 2, 16), gaussian(8, q=2000, k=2000))
        for ranks in ("1", "4", "16"):
            right(folder, "--ranks", ranks, "--schedule", "ring")


def far_sinks():
    """Sink logits so far from all scores that fp32 holds nothing of their gradients, beside some of which it does."""
    tokens, dim, logits = 48, 8, (130.0, -122.0, 107.0, -26.0, 19.0, 0.5)
    with tempfile.TemporaryDirectory() as folder:
        inputs(folder, (1, tokens, len(logits), dim), gaussian("far sinks"))
        write_npy(os.path.join(folder, "sinks.npy"), logits, (len(logits),))
        for ranks in ("1", "4"):
            right(folder, "--sink-logits", "sinks.npy", "--ranks", ranks, "--out", "out")
            gradients = read_npy(os.path.join(folder, "out", "dsink_logits.npy"))
            assert gradients[1] == 0 and all(gradients[head] != 0 for head in (3, 4, 5)), gradients


def weights_that_underflow():
    """Beside a sink that takes all of the weight, every other weight of a row may be lost, and then all are at once."""
    with tempfile.TemporaryDirectory() as folder:
        inputs(folder, (48, 2, 16), lambda name, count: [x + {"v": 50, "do": 5}.get(name, 0)
                                                         for x in gaussian("underflow")(name, count)])
        for logit in (69, 75, 80, 90, 104):
            write_npy(os.path.join(folder, "sinks.npy"), (logit, logit), (2,))
            for ranks in ("1", "4"):
                right(folder, "--sink-logits", "sinks.npy", "--ranks", ranks)
        write_npy(os.path.join(folder, "sinks.npy"), (40, 40), (2,))  # where nothing may be lost
        errors = right(folder, "--sink-logits", "sinks.npy", "--ranks", "4")
        assert errors["tolerance"] < 1e-3, errors


def small_on_wires():
    """Numbers of which a 16-bit wire holds few bits, or none."""
    for size in (1e-37, 1e-39, 1e-40):
        for small in ({"do": size}, {"v": size}, {"v": size, "do": size}):
            with tempfile.TemporaryDirectory() as folder:
                inputs(folder, (64, 2, 16), gaussian(9, **small))
                for ranks, schedule in (("1", "ring"), ("2", "ring"), ("7", "burst"), ("16", "zigzag-ring")):
                    right(folder, "--ranks", ranks, "--schedule", schedule, "--wire", "bf16")


def places():
    """Of packed documents one is of numbers that weigh nothing beside the others: it is right, or it is named."""
    with tempfile.TemporaryDirectory() as folder:
        ordinary = gaussian(4)
        inputs(folder, (60, 2, 16), lambda name, count: [x * (1e-41 if name == "v" and 640 <= i < 1280 else 1)
                                                         for i, x in enumerate(ordinary(name, count))])
        done, errors = run(folder, "--cu-seqlens", "0,20,40,60", "--ranks", "2")
        off = [each for each in errors["parts"] if not each["ok"]]
        for each in off:
            assert each["document"] == 1 and 0.5 < each["error"], errors
        assert not off or "document 1, tokens 20 to 39" in done.stderr, done.stderr
        assert {each["result"] for each in errors["parts"]} == {"o", "lse", "dq", "dk", "dv"}


def infinities():
    """They go where they should: results that hold them are right."""
    with tempfile.TemporaryDirectory() as folder:
        ordinary = gaussian(5)
        for name, value in (("v", math.inf), ("q", math.nan), ("k", -math.inf), ("do", math.nan)):
            inputs(folder, (24, 2, 16), lambda each, count: [value if each == name and i == 200 else x
                                                             for i, x in enumerate(ordinary(each, count))])
            right(folder, "--ranks", "2", "--schedule", "zigzag-ring", "--cu-seqlens", "0,12,24")


def scores_without_number():
    """The largest score of a head is NaN where a score is; a cap that is reached leaves no derivative, whatever it meets."""
    with tempfile.TemporaryDirectory() as folder:
        ordinary = gaussian(6)
        for name, value in (("k", math.nan), ("k", math.inf), ("q", math.inf)):
            inputs(folder, (24, 2, 16), lambda each, count: [value if each == name and i == 200 else x
                                                             for i, x in enumerate(ordinary(each, count))])
            for ranks in ("1", "12"):  # many queries a tile, and few
                for scores in ([], ["--softcap", "5"], ["--softcap", "1e-30"]):
                    right(folder, "--max-logit", "--ranks", ranks, *scores)
        inputs(folder, (24, 2, 16), ordinary)
        for probability in ("0.9999999995", "0.9999999999"):
            for backend in ("reference", "cpu"):
                right(folder, "--dropout", probability, "--backend", backend)


def dropped_by_a_program():
    """A program says how much is dropped, and each run of it what: as a named schedule does."""
    shape = ["--seq", "40", "--heads", "2", "--head-dim", "16", "--ranks", "2", "--schedule", "ring"]
    with tempfile.TemporaryDirectory() as folder:
        def distattn(*options):
            return subprocess.run([DISTATTN, *options], cwd=folder, text=True, capture_output=True, timeout=60)

        for name, dropout in (("some", ["--dropout", "0.3"]), ("none", [])):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(distattn("show", *shape, *dropout, "--format", "json").stdout)
        for name, options in (("7", ["--program", "some", "--dropout-seed", "7"]), ("0", ["--program", "some"]),
                              ("named", [*shape, "--dropout", "0.3", "--dropout-seed", "7"])):
            done = distattn("run", "--random", "--check", "--out", name, *options)
            assert done.returncode == 0, done.stderr
        seven, none, named = (read_npy(os.path.join(folder, name, "o.npy")) for name in ("7", "0", "named"))
        assert seven == named and seven != none
        done = distattn("run", "--random", "--program", "none", "--dropout-seed", "7")
        assert done.returncode == 2 and "without dropout (--dropout-seed would change nothing)" in done.stderr, done.stderr


def near_the_cap():
    """The derivative of a cap is right to its last digits where 1 − tanh² would be rounding, and 0 where it is lost."""
    with tempfile.TemporaryDirectory() as folder:
        for level, cap in ((3.0, "5"), (3.0, "2.2"), (-3.0, "3"), (3.0, "1"), (9.0, "2")):
            ordinary = gaussian(7)
            middle = {"q": 3.0, "k": level}
            inputs(folder, (40, 2, 16), lambda name, count: [x if name in ("v", "do") else middle[name] + 0.2 * x
                                                             for x in ordinary(name, count)])
            for backend in ("reference", "cpu"):
                for ranks in ("1", "3"):
                    right(folder, "--softcap", cap, "--backend", backend, "--ranks", ranks)


def largest_scores():
    """Those of wide heads round more than other scores do: their terms have one sign."""
    for dim in ("192", "576"):
        for scale in ([], ["--scale", "1"]):
            done = subprocess.run([DISTATTN, "run", "--random", "--seq", "48", "--heads", "32", "--head-dim", dim, "--max-logit",
                                   "--check", "--threads", "1", *scale], text=True, capture_output=True, timeout=60)
            assert done.returncode == 0, done.stderr


def sums_that_overflow():
    """Outputs are divided by their weights at the end: sums of values near the end of fp32 are infinite, and it is said."""
    with tempfile.TemporaryDirectory() as folder:
        inputs(folder, (64, 2, 16), lambda name, count: [3e37 if name == "v" else 1.0 for _ in range(count)])
        done, _ = run(folder)
        assert done.returncode == 1 and "sums of such large numbers overflow fp32" in done.stderr, done.stderr
        inputs(folder, (64, 2, 16), lambda name, count: [3e36 if name == "v" else 1e-3 for _ in range(count)])
        right(folder)


def commands():
    """validate and bench judge alike."""
    for command in (["validate", "--ranks", "2,3", "--schedule", "ring,burst", "--backend", "reference"],
                    ["bench", "-c", "-n", "1", "-w", "0", "--schedule", "ring", "--backward"]):
        done = subprocess.run([DISTATTN, *command, "--seq", "64", "--heads", "2", "--head-dim", "16", "--documents", "pile",
                               "--json"], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        assert rows and all(row["ok"] for row in rows), rows
    done = subprocess.run([DISTATTN, "bench", "-c", "-n", "1", "-w", "0", "--seq", "64", "--heads", "2", "--head-dim", "16",
                           "--schedule", "ring", "-o", "csv"], text=True, capture_output=True, timeout=60)
    head, row = done.stdout.splitlines()
    assert "error.o" in head and "parts" not in head and head.count(",") == row.count(","), done.stdout


for check in (ranks_and_magnitudes, kinds_of_inputs, padding, equal_rows, roundings_that_happen, denormals, large_scores,
              far_sinks, weights_that_underflow, small_on_wires, places, infinities, scores_without_number,
              dropped_by_a_program, near_the_cap,
              largest_scores, sums_that_overflow, commands):
    check()
    print(check.__name__, "fine")
