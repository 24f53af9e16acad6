"""distattn step as a user calls it: fields, counts under the policies, a text that is learnt, errors."""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

DISTATTN, TEXT = sys.argv[1:3]
MODEL = ["--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2"]
FIELDS = """schema_version step loss grad_norm seconds forward_s backward_s attention_s attention_forwards
attention_backwards forward_bytes backward_bytes gradient_bytes bytes_sent_max peak_activation_bytes""".split()


def step(*options, model=MODEL):
    return subprocess.run([DISTATTN, "step", *model, *options], text=True, capture_output=True)


def steps(*options):
    done = step(*options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(code, words, *options, model=MODEL):
    done = step(*options, model=model)
    assert done.returncode == code, (done.returncode, options, done.stderr)
    assert words in done.stderr and done.stderr.count("\n") == 1, (options, done.stderr)


def policies():
    runs = {policy: steps("--seq", "96", "--ranks", "3", "--steps", "2", "--schedule", "balanced", "--checkpoint", policy)
            for policy in ("none", "layer", "attention-output", "attention-output-host")}
    none, layer, output, host = runs.values()
    for run in runs.values():
        assert all(field in figures for figures in run for field in FIELDS)
        assert [(f["loss"], f["grad_norm"]) for f in run] == [(f["loss"], f["grad_norm"]) for f in none]
        assert [f["step"] for f in run] == [0, 1]
    for field in ("attention_forwards", "forward_bytes"):
        assert layer[0][field] == 2 * none[0][field] == 2 * output[0][field] > 0
    kept = [run[0]["peak_activation_bytes"] for run in (none, output, layer)]
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == 3
    assert host[0]["peak_activation_bytes"] == kept[2]


def verified():
    for ranks in ("1", "2", "4"):
        plain, = steps("--seq", "80", "--ranks", ranks, "--verify")
        scored, = steps("--seq", "80", "--ranks", ranks, "--verify", "--softcap", "0.5", "--alibi", "standard")
        assert plain["gradient_error"] < 1e-5 and scored["gradient_error"] < 1e-5
        assert plain["grad_norm"] != scored["grad_norm"]


def found_wrong():
    """What is learnt by heart leaves gradients of next to nothing, which fp32 does not resolve."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text("ab" * 4)
        done = step("--seq", "16", "--steps", "300", "--text", str(text), "--verify", "--json", "--quiet",
                    model=["--layers", "1", "--hidden", "16", "--heads", "2"])
    errors = [figures["gradient_error"] for figures in json.loads(done.stdout)]
    first = next(i for i, error in enumerate(errors) if error is None or error > 1e-5)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    assert f"is wrong in step {first} (an error of " in done.stderr and "the tolerance of 1.00e-05)" in done.stderr, done


def learnt():
    run = steps("--seq", "128", "--ranks", "2", "--steps", "60", "--text", TEXT, "--schedule", "zigzag-ring")
    assert sum(f["loss"] for f in run[-5:]) < sum(f["loss"] for f in run[:5]) * 2 / 3


def host_memory():
    """Layers are computed in host memory: what a policy keeps there is not somewhere else."""
    setting = ["--seq", "1024", "--ranks", "2", "--schedule", "ring", "--checkpoint"]
    kept, offloaded = (float(step(*setting, policy, "--memory", "1K").stderr.split("needs ")[1].split(" MiB")[0])
                       for policy in ("attention-output", "attention-output-host"))
    assert offloaded >= kept > 1, (kept, offloaded)


def errors():
    refused(2, "heads 5 do not divide hidden 64", "--seq", "16", model=["--hidden", "64", "--heads", "5"])
    refused(2, "checkpoint policy 'all' is not known", "--seq", "16", "--checkpoint", "all")
    refused(2, "--seq is missing")
    refused(2, "seq is 1", "--seq", "1")
    refused(2, "--memory allows 1.00 KiB", "--seq", "16", "--memory", "1K", "--schedule", "ring")
    refused(2, "balanced", "--seq", "16", "--ranks", "2", "--schedule", "balanced", "--mask", "full")
    with tempfile.TemporaryDirectory() as folder:
        short = pathlib.Path(folder, "short")
        short.write_text("a")
        refused(2, "has 1 bytes", "--seq", "16", "--text", str(short))
        refused(2, "cannot read", "--seq", "16", "--text", folder)
    refused(2, "neither a regular file nor a pipe", "--seq", "16", "--text", "/dev/zero")


def too_large():
    small = {"--layers": "1", "--hidden": "16", "--heads": "2", "--seq": "5"}

    def model(**sizes):
        return [word for pair in {**small, **{"--" + name: size for name, size in sizes.items()}}.items() for word in pair]
    for sizes in ({"ffn": 2**63 - 1}, {"ffn": 2**62}, {"vocab": 2**60}, {"vocab": 2**63 - 2}, {"hidden": 2**34},
                  {"hidden": 2**32 + 16}, {"hidden": 2**33 + 16}, {"hidden": 2**63 - 2}):
        refused(2, "(sizes overflow 63 bits)", model=model(**{name: str(size) for name, size in sizes.items()}))
    for option, size in (("ffn", "16G"), ("vocab", "16G"), ("layers", str(2**31 - 1))):
        refused(3, "this step needs ", model=model(**{option: size}))
    refused(3, "this step needs ", "--verify", model=model(ffn="4G"))


def predicted():
    def plan(*options):
        return subprocess.run([DISTATTN, "plan", *options], text=True, capture_output=True)
    done = plan("--step", "llama-7b", "--machine", "dgx-a100x2", "--seq", "128K", "--ranks", "16", "--json")
    rows = {row["checkpoint"]: row for row in json.loads(done.stdout)}
    assert all(field in row for row in rows.values() for field in FIELDS if field not in ("step", "loss", "grad_norm"))
    none, layer, output = (rows[policy] for policy in ("none", "layer", "attention-output"))
    assert none["seconds"] < output["seconds"] < layer["seconds"]
    assert none["largest_seq"] < output["largest_seq"] < layer["largest_seq"]
    assert layer["forward_bytes"] == 2 * output["forward_bytes"] > 0
    figures = json.loads(plan("--step", "--paper", "distflashattn", "--json").stdout)
    assert sum(figure["where"] == "Table 1" for figure in figures) == 36
    assert plan("--step").returncode == 2
    layers = 2**31 - 1
    deep, = json.loads(plan("--step", f"layers={layers},hidden=256,heads=4,vocab=1", "--machine", "dgx-a100x2", "--seq",
                            "1K", "--ranks", "8", "--checkpoint", "layer", "--json").stdout)
    assert deep["attention_forwards"] == 2 * layers
    assert plan("--step", "llama-7b", "--seq", "1K", "--heads", "3").returncode == 2
    one, other = (plan("--step", f"layers=4,{sizes},heads=16", "--machine", "dgx-a100x2", "--seq", "1K", "--ranks", "2")
                  for sizes in ("hidden=2K,vocab=32K", "vocab=32768,hidden=2048"))
    assert one.returncode == 0 and one.stdout == other.stdout, (one, other)

    # What does not apply is skipped, and the rest is sorted, best first.
    done = plan("--step", "gpt-760m", "--machine", "dgx-h100x8", "--seq", "8K", "--ranks", "64,8", "--schedule",
                "ulysses,ring,zigzag-ring", "--checkpoint", "none,layer", "--json")
    rows = json.loads(done.stdout)
    assert "skipped ulysses on 64 ranks: " in done.stderr, done.stderr
    assert [(row["ranks"], row["seconds"]) for row in rows] == sorted((row["ranks"], row["seconds"]) for row in rows)
    assert len(rows) == 10 and rows[0]["ranks"] == 8
    done = plan("--step", "gpt-760m", "--machine", "dgx-h100x8", "--seq", "8K", "--ranks", "64",
                "--schedule", "ulysses")
    assert done.returncode == 2 and "no step is left to plan (ulysses on 64 ranks: " in done.stderr, done.stderr

    # The largest sequence is one whose own plan fits; what does not fit is said.
    def ring(sequence, *options):
        done = plan("--step", "llama-7b", "--machine", "dgx-h100x8", "--schedule", "ring", "--ranks", "8", "--seq",
                    str(sequence), "--checkpoint", "layer", "--json", *options)
        row, = json.loads(done.stdout)
        return row, "1 of 1 rows need more than" in done.stderr
    row, _ = ring(8192)
    largest = row["largest_seq"]
    assert ring(4)[0]["largest_seq"] == largest > 8192
    assert ring(largest)[1] is False and ring(largest + 8)[1] is True
    assert ring(64, "--cu-seqlens", "0,20,64")[0]["largest_seq"] is None

    # The same model, planned and run: counts agree exactly, where a rank owns more than its share too.
    model = "layers=2,hidden=64,heads=4,kv-heads=2"
    even = ["--seq", "96", "--ranks", "3", "--schedule", "balanced"]
    uneven = ["--seq", "11", "--ranks", "4", "--schedule", "zigzag-ring"]
    policies = ("none", "layer", "attention-output", "attention-output-host")
    for shape, policy in itertools.product((even, uneven), policies):
        row, = json.loads(plan("--step", model, *shape, "--checkpoint", policy, "--state", "replicated", "--dtype", "fp32",
                               "--json").stdout)
        run, = steps(*shape, "--checkpoint", policy)
        for field in ("attention_forwards", "attention_backwards", "forward_bytes", "backward_bytes", "gradient_bytes",
                      "bytes_sent_max", "peak_activation_bytes", "peak_offloaded_bytes", "peak_memory_bytes"):
            assert row[field] == run[field], (policy, field, row[field], run[field])


for check in (predicted, policies, verified, found_wrong, learnt, host_memory, errors, too_large):
    check()
    print(check.__name__, "fine")
