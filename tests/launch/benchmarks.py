"""bench with ranks in processes: the same rows and counts as with threads, said by rank 0 alone, judged for all.
Times are never judged."""

import json
import signal
import sys

from ranks import (BINARY, MPIRUN, SCRATCH, clean_up, expect, expect_nothing_left, finish, leftovers, start, start_ranks,
                   under_mpirun, under_srun, under_torchrun)

SHAPE = ("--seq", "96", "--heads", "4", "--head-dim", "16", "--backend", "reference")
FEW = ("-n", "2", "-w", "1")
COUNTS = ("schedule", "pass", "mode", "steps", "messages", "bytes_sent_max", "bytes_sent_mean", "peak_remote_bytes",
          "dtype", "heads", "head_dim", "seq", "mask")
RATES = ("median_s", "first_s", "gflops", "peak_gflops", "peak_bytes_per_s", "bytes_per_s")


def by_file(ranks, *arguments, **variables):
    return finish(start_ranks(ranks, *arguments, **variables))


def rows_of(ends, code=0):
    """Those of rank 0, after which nobody else had anything to say."""
    expect(all(end[0] == code for end in ends), ends)
    expect(not any(out or err for _, out, err in ends[1:]), "other ranks speak:", ends)
    return json.loads(ends[0][1])


def rows_here(ranks, *arguments):
    return rows_of(finish([start([BINARY, "bench", *arguments, "--ranks", ranks, "--json"])]))


def counts_of(rows):
    return [[row[field] for field in COUNTS] for row in rows]


def under_mpirun_together(ranks, *arguments):
    """mpirun joins the ranks' outputs: were a second rank to print, it would be no JSON."""
    return under_mpirun(ranks, *arguments)


def the_rows_of_threads():
    arguments = (*SHAPE, *FEW, "--schedule", "ring,ring/burst,ulysses", "--backward", "-c")
    starts = {"file": by_file, "torchrun": under_torchrun, "slurm": under_srun}
    if MPIRUN:
        starts["pmix"] = under_mpirun_together
    here = {ranks: counts_of(rows_here(ranks, *arguments)) for ranks in (2, 4)}
    for name, under in starts.items():
        ranks = 4 if name in ("file", "pmix") else 2
        rows = rows_of(under(ranks, "bench", *arguments, "--json"))
        expect(counts_of(rows) == here[ranks], name, "rows differ:", counts_of(rows), here[ranks])
        for row in rows:
            expect((row["ranks"], row["transport"], row["bootstrap"]) == (ranks, "ucx", name), row)
            expect(all(row[field] > 0 for field in RATES) and row["exposed_s"] >= 0, row)
            expect(row["ok"] and row["wrong"] == 0 and row["predicted_s"] > 0, row)
            expect(row["p10_s"] <= row["median_s"] <= row["p90_s"], row)


def lists_of_values():
    """What one combination of them, or one schedule, cannot do is left out on all ranks."""
    ends = by_file(2, "bench", "--seq", "64", "--heads", "4,3", "--kv-heads", "2", "--head-dim", "8,16", "--dtype",
                   "fp32,bf16", "--backend", "reference", *FEW, "--schedule", "ring,balanced", "--mask", "causal,full",
                   "--json")
    expect(all(code == 0 for code, _, _ in ends) and not any(out or err for _, out, err in ends[1:]), ends)
    cases = [(row["mask"], row["dtype"], row["head_dim"], row["heads"], row["schedule"]) for row in json.loads(ends[0][1])]
    expect(cases == [(mask, dtype, dim, 4, name) for mask in ("causal", "full") for dtype in ("fp32", "bf16")
                     for dim in (8, 16) for name in ("ring", "balanced") if (mask, name) != ("full", "balanced")], cases)
    expect(ends[0][2].count("3 heads on 2 kv-heads") == 8 and "skipped balanced on 2 ranks" in ends[0][2], ends[0][2])


def gates_are_for_all():
    for gate, code in (("1e-9", 0), ("1e9", 1)):
        ends = by_file(3, "bench", *SHAPE, *FEW, "--schedule", "ring", "--min-gflops", gate, "-q", "--json")
        expect(all(end[0] == code for end in ends), gate, ends)
        expect(("GFLOP/s" in ends[0][2]) == (code == 1) and not any(err for _, _, err in ends[1:]), gate, ends)
        expect(len(json.loads(ends[0][1])) == 1, "a gate hides the rows:", ends)


def what_auto_cannot_do_is_left_out():
    arguments = ("bench", *SHAPE, *FEW, "--schedule", "ring,auto", "--json", "--memory")
    rows = json.loads(by_file(2, *arguments, "1G")[0][1])
    expect(len(rows) == 2, rows)
    ends = by_file(2, *arguments, "1")
    expect(all(code == 2 and "auto on 2 ranks: no schedule fits" in errors for code, _, errors in ends), ends)


def contradictions_are_usage():
    ends = by_file(2, "bench", *SHAPE, "--kernel", "attend")
    expect(all(code == 2 and "--kernel" in errors for code, _, errors in ends), ends)
    for more, words in ((("--kernel", "attend", "--seq", "64"), "--kernel in 2 processes"),
                        ((*SHAPE, "--ranks", "2,4"), "--ranks is a list"),
                        ((*SHAPE, "--transport", "inproc"), "transport inproc does not connect processes"),
                        ((*SHAPE, "--machine", "no-such-machine"), "no machine 'no-such-machine'")):
        ends = under_torchrun(2, "bench", *more)
        expect(all(code == 2 and words in errors and not out for code, out, errors in ends), more, ends)


def options_are_compared():
    for own in (("-n", "3"), ("--backward",), ("--memory", "1G")):
        ends = finish(start_ranks(2, "bench", *SHAPE, "--schedule", "ring", own=lambda rank: own if rank == 1 else ()))
        differs = "rank 1 differs from rank 0 in its options"
        expect(all(code == 3 and differs in errors for code, _, errors in ends), own, ends)


def who_dies_ends_all():
    ranks = start_ranks(3, "bench", *SHAPE, "-n", "1000000", "--schedule", "ring", "-v")
    while "now ring on 3 ranks" not in (line := ranks[0].stderr.readline()):
        expect(line, "it ended without a row:", finish(ranks))
    ranks[1].send_signal(signal.SIGKILL)
    ends = finish(ranks)
    expect(ends[1][0] == -signal.SIGKILL, ends)
    expect(all(code == 3 and "rank 1" in errors and not out for code, out, errors in (ends[0], ends[2])), ends)


def links_are_measured():
    """Between ranks of one node and of two, kept apart from each other and from copies between threads, and used."""
    cache = {"XDG_CACHE_HOME": str(SCRATCH / "cache")}
    cpu = (*SHAPE[:-1], "cpu")  # which calibrates in a tenth of reference's time
    calibrate = ("bench", "--calibrate", "--heads", "1", "--head-dim", "8", *cpu[-2:], "--json")
    rows = ("bench", *cpu, *FEW, "--schedule", "ring")

    near = rows_of(by_file(2, *calibrate, **cache))
    stored, = (SCRATCH / "cache" / "distattn").glob("machine-*.json")
    expect(near == json.loads(stored.read_text()), "stored and printed machines differ")
    expect(list(near["transports"]) == ["ucx"] and list(near["transports"]["ucx"]) == ["near"], near["transports"])
    expect(near["near"] == {"bytes_per_s": 6e9, "latency_s": 20e-6}, "copies between threads were not measured:", near)

    far = rows_of(under_torchrun(2, *calibrate, a_node=1, **cache))
    link = far["transports"]["ucx"]["far"]
    expect(link["bytes_per_s"] > 0 and link["latency_s"] > 0 and link["per"] == "node", far["transports"])

    def predicted(under):
        return rows_of(under(2, *rows, "-q", "--json", **cache))[0]["predicted_s"]

    before = predicted(by_file), predicted(lambda *a, **v: under_torchrun(*a, a_node=1, **v))
    for name, index in (("near", 0), ("far", 1)):
        machine = json.loads(stored.read_text())
        machine["transports"]["ucx"].setdefault("near", {})
        machine["transports"]["ucx"][name] = {"bytes_per_s": 1e3, "latency_s": 1, **({"per": "node"} if name == "far" else {})}
        if not machine["transports"]["ucx"]["near"]:
            del machine["transports"]["ucx"]["near"]
        stored.write_text(json.dumps(machine))
        after = predicted(by_file), predicted(lambda *a, **v: under_torchrun(*a, a_node=1, **v))
        expect(after[index] > before[index] + 1, name, "links are not used:", before, after)
        stored.write_text(json.dumps(far))


def main():
    before = leftovers()
    for test in (the_rows_of_threads, lists_of_values, gates_are_for_all, what_auto_cannot_do_is_left_out,
                 contradictions_are_usage, options_are_compared, who_dies_ends_all, links_are_measured):
        test()
    expect_nothing_left(before)
    clean_up()
    print("passed")


if __name__ == "__main__":
    main()
