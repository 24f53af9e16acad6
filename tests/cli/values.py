#!/usr/bin/env python3
"""Values as files and command lines have them: what a type does not hold, headers of other writers, bounds without
bound, options given twice.

usage: values.py DISTATTN
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

DISTATTN = os.path.abspath(sys.argv[1])
SHAPE = (6, 1, 8)
ELEMENTS = math.prod(SHAPE)


def npy(path, values, header=None, kind="f"):
    literal = header or str({"descr": {"f": "<f4", "d": "<f8"}[kind], "fortran_order": False, "shape": SHAPE})
    text = literal.encode() + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + struct.pack(f"<{len(values)}{kind}", *values))


def ordinary(at=None, value=0.0):
    values = [math.sin(3 * i + 1) for i in range(ELEMENTS)]
    if at is not None:
        values[at] = value
    return values


def write_inputs(folder, **changed):
    for name in ("q", "k", "v", "do"):
        npy(os.path.join(folder, f"{name}.npy"), **{"values": ordinary(), **changed.get(name, {})})


def distattn(folder, *arguments):
    return subprocess.run([DISTATTN, *arguments], cwd=folder, text=True, capture_output=True, timeout=60)


FILES = ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--threads", "1"]


def refused(done, *says):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and not done.stdout, (done.returncode, done.stdout, done.stderr)
    for word in says:
        assert word in lines[0], (word, lines[0])


def fine(done, *says):
    assert done.returncode == 0, (done.returncode, done.stderr)
    for word in says:
        assert word in done.stderr, (word, done.stderr)
    return done


def overflow():
    """A finite value that becomes infinite is named; an infinity that the file holds is not."""
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder, k={"values": ordinary(2 * 8 + 3, 70000.0)})
        for extra in ([], ["--ranks", "3", "--schedule", "zigzag-ring"]):
            refused(distattn(folder, *FILES, "--dtype", "fp16", "--out", "o", *extra),
                    "k.npy[2, 0, 3] is 70000", "fp16 ends at 65504", "--dtype bf16 or fp32")
        assert "o" not in os.listdir(folder)
        for dtype in ("bf16", "fp32"):
            fine(distattn(folder, *FILES, "--dtype", dtype))
        for value, holds in ((65519.0, True), (-65520.0, False), (math.inf, True), (math.nan, True)):
            write_inputs(folder, k={"values": ordinary(7, value)})
            done = distattn(folder, *FILES, "--dtype", "fp16")
            assert (done.returncode == 0) == holds, (value, done.stderr)
        write_inputs(folder, v={"values": ordinary(47, 3.4e38)})
        refused(distattn(folder, *FILES, "--dtype", "bf16"), "v.npy[5, 0, 7] is 3.4e+38", "bf16 ends at")
        write_inputs(folder, do={"values": ordinary(0, 1e39), "kind": "d"})
        fine(distattn(folder, *FILES, "--dtype", "fp32"))  # do is not read
        refused(distattn(folder, *FILES, "--dtype", "fp32", "--do", "do.npy", "--backward"), "do.npy[0, 0, 0] is 1e+39",
                "fp32 ends at 3.4")
        refused(distattn(folder, *FILES, "--do", "do.npy", "--backward"), "do.npy is float64", "--dtype fp32")


def underflow():
    """What becomes 0 is counted on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        values = ordinary(3, 1e-8)
        values[11] = -2e-8
        write_inputs(folder, v={"values": values})
        done = fine(distattn(folder, *FILES, "--dtype", "fp16", "--json"), "v.npy[0, 0, 3] is 1", "and 1 more",
                    "0 in fp16")
        assert json.loads(done.stdout)["dtype"] == "fp16"
        assert distattn(folder, *FILES, "--dtype", "fp32").stderr == ""
        assert distattn(folder, *FILES, "--dtype", "bf16").stderr == ""
        write_inputs(folder, q={"values": ordinary(3, 1e-60), "kind": "d"})
        fine(distattn(folder, *FILES, "--dtype", "fp32"), "q.npy[0, 0, 3] is 1e-60", "0 in fp32")


def headers():
    """As Python 2 and other writers have them."""
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder)
        want = fine(distattn(folder, *FILES, "--out", "a")).stdout.splitlines()[1]
        for literal in ("{'descr': '<f4', 'fortran_order': False, 'shape': (6L, 1L, 8L), }",
                        "{ 'shape' : ( 6 , 1 , 8 ) , 'fortran_order' : False , \"descr\" : \"=f4\" }   ",
                        "{'descr': 'float32', 'fortran_order': False, 'shape': (6, 1, 8)}",
                        "{u'descr': '|f4', u'fortran_order': False, u'shape': (6, 1, 8)}"):
            write_inputs(folder, q={"values": ordinary(), "header": literal})
            assert fine(distattn(folder, *FILES, "--out", "b")).stdout.splitlines()[1] == want
            with open(os.path.join(folder, "a/o.npy"), "rb") as a, open(os.path.join(folder, "b/o.npy"), "rb") as b:
                assert a.read() == b.read(), literal


def types_of_others():
    """Types that attention does not read refuse the tensor, not the file."""
    size = ELEMENTS * 4
    for dtype, bits in (("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8),
                        ("F8_E8M0", 8), ("C64", 64), ("I8", 8), ("BOOL", 8), ("X2_FUTURE", 2)):
        header = {n: {"dtype": "F32", "shape": list(SHAPE), "data_offsets": [i * size, (i + 1) * size]}
                  for i, n in enumerate("qkv")}
        header["w"] = {"dtype": dtype, "shape": list(SHAPE), "data_offsets": [3 * size, 3 * size + bits * ELEMENTS // 8]}
        data = struct.pack(f"<{ELEMENTS}f", *ordinary()) * 3 + bytes(bits * ELEMENTS // 8)
        with tempfile.TemporaryDirectory() as folder:
            for asked in (False, True):
                if asked:
                    header["do"] = header.pop("w")
                text = json.dumps(header).encode()
                with open(os.path.join(folder, "t.safetensors"), "wb") as file:
                    file.write(struct.pack("<Q", len(text)) + text + data)
                done = distattn(folder, "run", "--tensors", "t.safetensors", "--threads", "1",
                                *(["--backward"] if asked else []))
                if asked:
                    refused(done, f"t.safetensors:do is of dtype '{dtype}'")
                else:
                    fine(done)


def bytes_in_messages():
    """What a file holds does not cut a line, nor begin another."""
    with tempfile.TemporaryDirectory() as folder:
        for within, spelled in (("\0", "\\x00"), ("\n", "\\x0a"), ("\x1b[31m", "\\x1b[31m")):
            literal = f"{{'descr': '<f4{within}', 'fortran_order': False, 'shape': (6, 1, 8)}}"
            write_inputs(folder, q={"values": ordinary(), "header": literal})
            refused(distattn(folder, *FILES), f"dtype '<f4{spelled}'", "convert it to")


def documents_of_files():
    """A list without a number is none."""
    size = ELEMENTS * 4
    with tempfile.TemporaryDirectory() as folder:
        for ends, fits in (([], False), ([0, 2, 6], True)):
            header = {n: {"dtype": "F32", "shape": list(SHAPE), "data_offsets": [i * size, (i + 1) * size]}
                      for i, n in enumerate("qkv")}
            header["ends"] = {"dtype": "I32", "shape": [len(ends)], "data_offsets": [3 * size, 3 * size + 4 * len(ends)]}
            text = json.dumps(header).encode()
            with open(os.path.join(folder, "t.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{ELEMENTS}f", *ordinary()) * 3 +
                           struct.pack(f"<{len(ends)}i", *ends))
            done = distattn(folder, "run", "--tensors", "t.safetensors", "--cu-seqlens", "@ends", "--json")
            if fits:
                assert "documents 2" in json.loads(fine(done).stdout)["mask"]
            else:
                refused(done, "--cu-seqlens @ends", "no number")


RANDOM = ["run", "--random", "--seq", "16", "--heads", "2", "--head-dim", "8", "--threads", "1"]


def masks():
    """Bounds that no position reaches, many bands, and what stands behind a zero byte."""
    with tempfile.TemporaryDirectory() as folder:
        def with_mask(text):
            with open(os.path.join(folder, "m.json"), "wb") as file:
                file.write(text.encode())
            return distattn(folder, *RANDOM, "--mask", "m.json", "--json")
        far = sys.maxsize
        done = fine(with_mask(json.dumps([{"q": [-far - 1, far], "k": [0, 2**64 - 1], "diff": [0, 10**30]}])))
        assert json.loads(done.stdout)["gflops"] > 0
        refused(with_mask('[]\0[{"q":3}]'), "zero byte at byte 3")
        refused(with_mask('[{"q":[0,16],"k":[0,16],"diff":[0,null]}]\0'), "zero byte")
        tokens = 40_000  # squares of this many take minutes
        with open(os.path.join(folder, "m.json"), "w") as file:
            json.dump([{"q": [i, i + 1], "k": [i, i + 1], "diff": [0, None]} for i in range(tokens)], file)
        fine(distattn(folder, "run", "--random", "--seq", str(tokens), "--heads", "1", "--head-dim", "8", "--threads",
                      "1", "--mask", "m.json", "--backward", "--check"))


def numbers():
    for text in ("nan", "inf", "-inf", "0x10", "0.5x", "1e400", "1e-400", "1,5", " 1", "0"):
        refused(distattn(".", *RANDOM, f"--scale={text}"), "--scale")
    refused(distattn(".", *RANDOM, "--scale", "1e-42"), "scale is 1e-42", "fp32")
    refused(distattn(".", *RANDOM, "--timeout", "inf"), "--timeout inf")
    refused(distattn(".", "run", "--random", "--seq", "16", "--heads", "2", "--head-dim", "59"), "pad it to 64",
            f"give scale {1 / math.sqrt(59)!r}", "1/sqrt(59)")
    done = distattn(".", "run", "--random", "--seq", "16", "--heads", "2", "--head-dim", "59", "--scale", "0.1")
    refused(done, "pad it to 64")
    assert "give scale" not in done.stderr


def twice():
    """The last one wins, on the command line and over a file's; masks of plan, bench and validate share a layout instead."""
    def shape_of(*arguments, cwd="."):
        return json.loads(fine(distattn(cwd, *arguments)).stdout)
    got = shape_of(*RANDOM, "--seq", "24", "--json", "--heads", "4", "--heads", "1", "--mask", "full", "--mask", "causal",
                   "--json", "-n", "2", "-n", "1", "--backward", "--backward=false", "-q", "-q")
    assert (got["seq"], got["heads"], got["mask"], got["backward"]) == (24, 1, "causal", False), got
    bench = ["bench", "--seq", "16", "--heads", "2", "--head-dim", "8", "--schedule", "ring", "-w", "0", "--threads", "1"]
    assert {row["ranks"] for row in shape_of(*bench, "-n", "9", "-n=1", "--ranks", "4", "--ranks", "1,2", "-o", "md",
                                             "-o=json")} == {1, 2}
    plan = ["plan", "--seq", "64", "--heads", "2", "--head-dim", "8", "--machine", "this", "--machine", "dgx-a100x2"]
    assert {row["ranks"] for row in shape_of(*plan, "--schedule", "all", "--schedule", "ring", "--ranks", "8", "--ranks",
                                             "2,4", "--json")} == {2, 4}
    rows = shape_of("validate", "--seq", "16", "--seq", "13", "--schedule", "all", "--schedule", "ring", "--ranks", "1-8",
                    "--ranks", "2", "--backend", "reference", "--json", "--threads", "1")
    assert len(rows) == 2 and "13" in rows[0]["case"], rows
    fine(distattn(".", "show", "--seq", "16", "--heads", "2", "--head-dim", "8", "--ranks", "3", "--ranks", "2",
                  "--schedule", "burst", "--schedule", "ring", "--format", "svg", "--format", "text"))
    fine(distattn(".", "info", "--json", "--json"))
    with tempfile.TemporaryDirectory() as folder:
        for name, ranks in (("a", 2), ("b", 4)):
            with open(os.path.join(folder, f"{name}.toml"), "w") as file:
                file.write(f"ranks = {ranks}\nbackward = true\n[run]\nheads = 8\n")
        options = ["--config", "a.toml", "--config", "b.toml", "--heads", "2", "--heads", "4", "--backward=false", "--json"]
        got = shape_of(*RANDOM, *options, cwd=folder)
        assert (got["ranks"], got["heads"], got["backward"]) == (4, 4, False), got
        npy(os.path.join(folder, "q.npy"), ordinary())
        got = shape_of("run", "--q", "none.npy", "--q", "q.npy", "--k", "q.npy", "--v", "q.npy", "--json", cwd=folder)
        assert got["seq"] == 6


def zero_bytes():
    """A name that a C string would cut is no name."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "machine.json"), "w") as file:
            file.write('{"name": "a\\u0000b", "nodes": 1}')
        done = distattn(folder, "plan", "--seq", "64", "--heads", "2", "--head-dim", "8", "--ranks", "2", "--machine",
                        "machine.json")
        assert done.returncode == 2, done
        write_inputs(folder, q={"values": ordinary(), "header":
                                "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 1, 8), }\0\0"})
        refused(distattn(folder, *FILES), "goes on after the closing brace")


def odd_names():
    """A file may have any name: results show it on one line, as UTF-8, and without what a terminal obeys."""
    names = ("a\nb.json", "a\x1b[31mb.json", "a\rb.json", "a\xe2\x80\xaeb.json", "a\xc2\x9b31mb.json",
             "a\xff\xfe.json", "a\"b\"|c.json")
    shape = ["--seq", "16", "--heads", "2", "--head-dim", "8", "--schedule", "ring", "--ranks", "2"]
    commands = (["run", "--random"], ["validate", "--backend", "reference"], ["plan"],
                *(["bench", "-n", "1", "-w", "0", "--threads", "1", "-o", form] for form in ("csv", "md")))
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            lines = set()
            for name in ("plain.json", *names):
                file = name.encode("latin-1")
                with open(os.path.join(os.fsencode(folder), file), "w") as mask:
                    mask.write('[{"q": [0, 16], "k": [0, 16], "diff": [0, null]}]')
                done = subprocess.run([DISTATTN, *command, *shape, "--mask", file], cwd=folder, capture_output=True,
                                      timeout=60)
                assert done.returncode == 0, (command, file, done.stderr)
                text = (done.stdout + done.stderr).decode()  # UTF-8, or this fails
                odd = [c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")]
                assert not odd, (command, file, odd, text)
                lines.add(done.stdout.count(b"\n"))
            assert len(lines) == 1, (command, lines)


def notes():
    """What says nothing is noted, once, and never with -q."""
    fine(distattn(".", *RANDOM, "--window", "4,2"), "--window 4,2 shows no key after a query (the mask is causal): write --window 4,0")
    assert "causal" not in fine(distattn(".", *RANDOM, "--window", "4,2", "--mask", "full")).stderr
    old, idle = "--sinks is now --global-keys", "--global-keys 3 changes nothing (no window hides a key): add --window"
    for command in (RANDOM, ["plan", "--seq", "16,24", "--heads", "2", "--head-dim", "8", "--schedule", "ring"]):
        for given, says in ((["--sinks", "3"], [old, idle]), (["--global-keys", "3"], [idle]),
                            (["--sinks", "3", "--window", "4,0"], [old]), (["--global-keys", "3", "--window", "4,0"], [])):
            done = fine(distattn(".", *command, *given), *says)
            assert [done.stderr.count(text) for text in (old, idle)] == [text in says for text in (old, idle)], done.stderr
            for quiet in ([*command, *given, "-q"], ["-q", *command, *given]):
                assert fine(distattn(".", *quiet)).stderr == "", quiet


def sink_logits():
    """plan and show take them and look at them as run does."""
    shape = ["--seq", "16", "--heads", "2", "--head-dim", "8", "--schedule", "ring", "--ranks", "2"]
    with tempfile.TemporaryDirectory() as folder:
        npy(os.path.join(folder, "logits.npy"), [0.5, 1e300], kind="d",
            header="{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }")
        npy(os.path.join(folder, "fine.npy"), [0.5, -1.5], kind="d",
            header="{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }")
        for text in ("random", "fine.npy"):
            rows = json.loads(fine(distattn(folder, "plan", *shape, "--sink-logits", text, "--json")).stdout)
            assert [row["sink_logits"] for row in rows] == [True], rows
            fine(distattn(folder, "show", *shape, "--sink-logits", text))
        for command in ("plan", "show"):
            for text, says in (("missing.npy", "missing.npy"), ("@sinks", "no input file holds it"),
                               ("logits.npy", "logits.npy has 1e+300 for head 1")):
                refused(distattn(folder, command, *shape, "--sink-logits", text), says)
            refused(distattn(folder, command, *shape, "--heads", "4", "--sink-logits", "fine.npy"), "has 2 numbers",
                    "4 query heads")
        program = fine(distattn(folder, "show", *shape, "--sink-logits", "random", "--format", "json")).stdout
        with open(os.path.join(folder, "program.json"), "w") as file:
            file.write(program)
        run = ["run", "--random", "--program", "program.json"]
        refused(distattn(folder, *run), "with sink logits", "add --sink-logits")
        fine(distattn(folder, *run, "--sink-logits", "random", "--check"))
        refused(distattn(folder, "run", "--random", *shape, "--sink-logits", "logits.npy"), "logits.npy has 1e+300 for head 1",
                "sums in fp32 hold no such number")
        fine(distattn(folder, "run", "--random", *shape, "--sink-logits", "logits.npy", "--dtype", "fp64", "--backend",
                      "reference"))


def other_backends():
    """What a backend does not compute, one that does is named for, and each name stands once."""
    done = distattn(".", *RANDOM, "--backend", "cpu", "--dtype", "fp64")
    refused(done, "cpu computes fp32, bf16 and fp16, not fp64; take backend reference)")
    assert done.stderr.count("cpu") == 1, done.stderr


def results():
    """In fp64, beyond what float32 holds, or what squares of doubles hold: right, and what --out cannot write is said:
    all of o and dk, and dq but for that of the first query, which is 0."""
    for size, note in ((1e-200, ""), (1.0, ""), (1e200, "136 numbers of the results are beyond float32")):
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(folder, **{name: {"values": ordinary(), "kind": "d"} for name in ("q", "k", "do")},
                         v={"values": [size * value for value in ordinary()], "kind": "d"})
            done = fine(distattn(folder, *FILES, "--do", "do.npy", "--backend", "reference", "--ranks", "3", "--backward",
                                 "--check", "--out", "out", "--json"), note)
            assert ("beyond float32" in done.stderr) == bool(note), done.stderr
            errors = json.loads(done.stdout)["error"]
            assert all(0 <= errors[name] < 1e-13 for name in ("o", "dq", "dk", "dv")), errors


for check in (results, overflow, underflow, headers, types_of_others, bytes_in_messages, documents_of_files, masks,
              numbers, twice, notes, sink_logits, other_backends, zero_bytes, odd_names):
    check()
    print(check.__name__, "fine")
