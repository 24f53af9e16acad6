#!/usr/bin/env python3
"""Random problems: what `distattn plan --json` counts equals what the executable model counts; with nodes, no more
bytes travel between them than in the model, and no rank sends more of them than its busiest.

usage: compare_counts.py DISTATTN [CASES [SEED]]        exit 77: cannot run here, with the reason
"""
import json
import random
import subprocess
import sys

try:
    import numpy  # noqa: F401  (the model needs it)
except ImportError:
    print("skipped: the model needs numpy for this python3")
    sys.exit(77)
import distmodel as model


def random_case(rng):
    ranks = rng.randint(1, 24)
    tokens = rng.choice([rng.randint(1, 60), rng.randint(60, 400), rng.randint(400, 3000)])
    heads = rng.choice([(4, 4), (8, 2), (8, 8), (16, 4)])
    dim = rng.choice([8, 64, 128])
    options, mask = [], {}
    kind = rng.choice(["causal", "full", "window", "sinks", "documents", "prefix", "block-causal", "two-sided"])
    if kind == "window":
        mask, options = dict(left=rng.randint(0, tokens)), []
        options = ["--window", f"{mask['left']},-1"]
    elif kind == "sinks":
        mask = dict(left=rng.randint(0, tokens), sinks=rng.randint(1, 9))
        options = ["--window", f"{mask['left']},-1", "--global-keys", str(mask["sinks"])]
    elif kind == "two-sided":
        mask = dict(causal=False, left=rng.randint(0, tokens), right=rng.randint(0, tokens))
        options = ["--mask", "full", "--window", f"{mask['left']},{mask['right']}"]
    elif kind == "full":
        mask, options = dict(causal=False), ["--mask", "full"]
    elif kind == "documents":
        ends = sorted(rng.randint(0, tokens) for _ in range(rng.randint(0, 6)))
        options = ["--cu-seqlens", ",".join(map(str, [0, *ends, tokens]))]
        mask = dict(docs=tuple(dict.fromkeys([0, *ends, tokens])))
    given = None
    if kind == "prefix":
        prefix = rng.randint(1, tokens)
        given, options = model.prefix_lm(tokens, prefix), ["--mask", f"prefix:{prefix}"]
    if kind == "block-causal":
        size = rng.randint(1, tokens)
        given, options = model.block_causal(tokens, size), ["--mask", f"block-causal:{size}"]
    the_mask = given or model.Mask(**mask)

    divisors = [d for d in range(1, ranks + 1) if ranks % d == 0]
    fitting = [u for u in divisors if heads[0] % u == 0 and heads[1] % u == 0]
    names = ["ring", "zigzag-ring", "striped-ring", "burst", "burst:zigzag"]
    if ranks in fitting:
        names.append("ulysses")
    groups = rng.choice(fitting)
    rows = rng.choice([d for d in divisors if (ranks // groups) % d == 0])
    layout = rng.choice(["block", "zigzag", "striped", "chunked"])
    names += [f"mesh:{groups}x{rows}x{ranks // groups // rows}:{layout}"] * 4
    if kind in ("causal", "window", "sinks", "documents"):
        names += ["balanced", "balanced-split"]
    name = rng.choice(names)
    queries = None
    if not name.startswith("balanced") and given is None and rng.random() < 0.2:
        queries = rng.randint(1, tokens)
    mode = rng.choice(["overlapped", "overlapped", "gathered"])
    return ranks, tokens, queries, heads, dim, the_mask, [*options, "--mode", mode], name


def program_of(case, backward, *routes):
    ranks, tokens, queries, heads, dim, mask, options, name = case
    overlap = options[-1] == "overlapped"
    return model.build(name.replace("burst:", "burst-"), tokens, ranks, mask, backward, overlap, queries, *routes)


def statistic(backward):
    """Bytes of the model's statistics, which know no low part: 2 beside the 4 of a partial's LSE; 2 beside the 8 of the
    backward query side's LSE and delta."""
    return 5 if backward else 6


def with_sums(nbytes):
    """The model's bytes of a value, and what this implementation sends with gradients that the model does not know: for
    each key head a vector of 4-byte elements with a backward query side, and for each row 4 bytes with dQ."""
    def of_value(program, value, heads, kv_heads, dim, **kw):
        extra = 0
        if value[0] == "Q" and program.grad and program.seg(value).count:
            extra = max(kv_heads / program.pb.groups, 1) * dim * 4
        elif value[0] == "dQ":
            extra = program.seg(value).count * heads / program.pb.groups * 4
        return nbytes(program, value, heads, kv_heads, dim, **kw) + extra
    return of_value


model.nbytes = with_sums(model.nbytes)


def expected(case, backward):
    ranks, _, _, heads, dim, _, _, _ = case
    program = program_of(case, backward)
    counts = model.verify(program)
    sent = model.volume(program, *heads, dim, stat=statistic(backward))
    time = model.simulate(program, *heads, dim, 1e12)
    return {
        "steps": counts["steps"], "messages": counts["messages"], "tiles": counts["tiles"],
        "peak_remote_values": counts["peak_remote_values"], "bytes_sent_max": max(sent),
        "bytes_sent_mean": sum(sent) / ranks, "idle_ideal": abs(time["idle"]),
    }


def compare(plan, want, sinks, report):
    # The model's owners send sinks to all ranks themselves. Trees send as much, most of it by others.
    in_trees = sinks > 0 and plan["bytes_sent_max"] != want["bytes_sent_max"]
    if in_trees and plan["bytes_sent_max"] > 1.2 * want["bytes_sent_max"]:
        report(f"{plan['pass']} bytes_sent_max: {plan['bytes_sent_max']}, without trees {want['bytes_sent_max']}")
    for field, value in want.items():
        if in_trees and field in ("bytes_sent_max", "peak_remote_values", "idle_ideal"):
            continue
        if abs(plan[field] - value) > 1e-9 * max(1, abs(value)):
            report(f"{plan['pass']} {field}: {plan[field]}, the model says {value}")


def compare_far(plan, case, node, ahead, report):
    ranks, _, _, heads, dim, _, _, _ = case
    program = program_of(case, plan["pass"] == "backward", node, ahead)
    far = model.volume(program, *heads, dim, far=True, stat=statistic(plan["pass"] == "backward"))
    for field, value in (("bytes_far_max", max(far)), ("bytes_far_mean", sum(far) / ranks)):
        if plan[field] > value * (1 + 1e-9):
            report(f"{plan['pass']} {field}: {plan[field]}, the model needs only {value}")


def main():
    binary = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    failed = 0
    for number in range(cases):
        case = random_case(rng)
        ranks, tokens, queries, heads, dim, mask, options, name = case
        if not any(mask.pairs(q, k) for q in model.block(tokens, 1) for k in model.block(tokens, 1)):
            continue
        command = [binary, "plan", "--json", "--backward", "--schedule", name, "--ranks", str(ranks), "--seq",
                   str(queries or tokens), "--seq-kv", str(tokens), "--heads", str(heads[0]), "--kv-heads",
                   str(heads[1]), "--head-dim", str(dim), "--dtype", "bf16", *options]
        node, ahead = (rng.randint(2, ranks - 1), rng.randint(0, 3)) if ranks > 2 else (0, 0)
        for routes in [[], ["--node-size", str(node), "--ahead", str(ahead)]] if node else [[]]:
            def report(line):
                nonlocal failed
                failed += 1
                print(f"case {number}: {' '.join(command + routes)}\n  {line}")

            result = subprocess.run(command + routes, capture_output=True, text=True)
            if result.returncode != 0:
                report(result.stderr.strip())
                continue
            for plan in json.loads(result.stdout):
                if routes:
                    compare_far(plan, case, node, ahead, report)
                else:
                    compare(plan, expected(case, plan["pass"] == "backward"), mask.sinks, report)
    print(f"seed {seed}: {cases} cases, {failed} differences")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
