"""bench: its fields, its three forms, sweeps, gates that fail, kernels and calibration. Times are never judged."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
SHAPE = ["--seq", "96", "--heads", "4", "--head-dim", "16", "-n", "3", "-w", "1"]
SMALL_HEADS = ["--heads", "1", "--head-dim", "8"]  # calibrating takes longer with larger ones
RUN_FIELDS = """schedule mode ranks threads backend transport dtype mask batch seq seq_kv heads kv_heads head_dim steps
    messages bytes_sent_max bytes_sent_mean peak_remote_bytes first_s median_s gflops predicted_s backward error""".split()
BENCH_FIELDS = """pass p10_s p90_s gflops_per_rank peak_gflops share bytes_per_s peak_bytes_per_s exposed_s
    wrong""".split()
KERNEL_FIELDS = """kernel pass coverage dtype seq threads gflops peak_gflops share bytes_per_s peak_bytes_per_s""".split()

passed, failed = 0, 0


def expect(condition, what):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def bench(cache, *arguments):
    return subprocess.run([BINARY, "bench", *arguments], capture_output=True, text=True, timeout=250, check=False,
                          env={**os.environ, "XDG_CACHE_HOME": cache})


def rows_of(cache, *arguments):
    done = bench(cache, *arguments, "--json")
    expect(done.returncode == 0, f"bench {' '.join(arguments)} exits {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else []


def check_rows(cache):
    rows = rows_of(cache, *SHAPE, "--ranks", "1-4*2", "--schedule", "ring,zigzag-ring/burst:zigzag", "--backward", "-c")
    cases = [(row["ranks"], row["schedule"], row["pass"]) for row in rows]
    expect(cases == [(ranks, name, one) for ranks in (1, 2, 4) for name in ("ring", "zigzag-ring/burst:zigzag")
                     for one in ("forward", "backward")], f"the rows of the sweep are {cases}")
    for row in rows:
        missing = [field for field in RUN_FIELDS + BENCH_FIELDS if field not in row]
        expect(not missing, f"a row lacks {missing}")
        expect(row["p10_s"] <= row["median_s"] <= row["p90_s"], f"percentiles out of order in {row}")
        expect(row["share"] * row["peak_gflops"] == row["gflops"] or
               abs(row["share"] * row["peak_gflops"] / row["gflops"] - 1) < 1e-9, f"share is not of the peak in {row}")
        expect(abs(row["gflops_per_rank"] * row["ranks"] / row["gflops"] - 1) < 1e-9, f"rates disagree in {row}")
        expect(row["wrong"] == 0 and max(v for k, v in row["error"].items() if k != "tolerance")
               <= row["error"]["tolerance"], f"wrong results in {row}")
        own = ("o",) if row["pass"] == "forward" else ("dq", "dk", "dv")
        expect(row["max_error"] >= max(row["error"][name] for name in own) > 0 and
               (row["pass"] == "forward" or row["max_error"] == max(row["error"][name] for name in own)),
               f"the largest error is not that of the row's pass: {row}")
        expect((row["bytes_per_s"] > 0) == (row["ranks"] > 1), f"bytes without messages or the reverse in {row}")
        expect(0 <= row["exposed_s"], f"communication exposed for {row['exposed_s']} s")
    planned = {row["ranks"]: row["backward"] for row in rows if row["pass"] == "forward"}
    expect(all(planned[row["ranks"]]["steps"] == row["steps"] for row in rows if row["pass"] == "backward"),
           "the backward row's steps are not those of the run's backward")


def check_order(cache):
    for options, fixed in (["--deterministic"], True), ([], False):
        rows = rows_of(cache, *SHAPE, "--schedule", "ring", "--backward", *options)
        expect([row["deterministic"] for row in rows] == [fixed, fixed], f"the order with {options} in {rows}")


def check_forms(cache):
    arguments = [*SHAPE, "--ranks", "2", "--schedule", "all"]
    names = [row["schedule"] for row in rows_of(cache, *arguments)]
    expect("ring" in names and "ulysses" in names, f"all means {names}")
    table = list(csv.DictReader(io.StringIO(bench(cache, *arguments, "-o", "csv").stdout)))
    expect([line["schedule"] for line in table] == names, "the rows of the CSV differ")
    expect(all(float(line["median_s"]) > 0 for line in table), "the CSV shows no times")
    lines = bench(cache, *arguments).stdout.splitlines()
    expect(len(lines) == len(names) + 2, "the Markdown table has other rows")
    expect(len({line.count("|") for line in lines}) == 1, "the Markdown table is ragged")


def check_gates(cache):
    for gate, code in ((["--min-gflops", "1e-9"], 0), (["--min-gflops", "1e9"], 1),
                       (["--max-ratio-to-prediction", "1e9"], 0), (["--max-ratio-to-prediction", "1e-9"], 1)):
        done = bench(cache, *SHAPE, "--ranks", "2", "--schedule", "ring", "-q", *gate)
        expect(done.returncode == code, f"{gate} exits {done.returncode}")
        expect(done.stdout.count("ring") == 1, f"{gate} hides the rows")
        expect(bool(done.stderr) == (code == 1), f"{gate} says {done.stderr!r}")


def check_planning(cache):
    """Nothing runs: two rows for each schedule and number of ranks, with times of three packings."""
    packed = ("--seq", "4096", "--heads", "4", "--head-dim", "16", "--documents", "prolong64k", "--planning", "3")
    done = bench(cache, *packed, "--schedule", "placed,ring", "--ranks", "2,4", "--json")
    expect(done.returncode == 0, f"--planning exits {done.returncode}: {done.stderr}")
    rows = json.loads(done.stdout or "[]")
    expect([(row["ranks"], row["schedule"], row["part"]) for row in rows] ==
           [(r, s, p) for r in (2, 4) for s in ("placed", "ring") for p in ("choosing", "making")], f"rows: {rows}")
    for row in rows:
        expect(0 <= row["least_s"] <= row["median_s"] <= row["p90_s"] <= row["most_s"], f"times of {row}")
        expect(row["packings"] == 3, f"packings of {row}")
    for more, words in ((("--check",), "--check"), (("-n", "3"), "-n")):
        done = bench(cache, *packed, *more)
        expect(done.returncode == 2 and words in done.stderr, f"--planning with {more}: {done.stderr}")
    done = bench(cache, *packed[:6], "--planning", "2")
    expect(done.returncode == 2 and "--documents" in done.stderr, f"--planning without documents: {done.stderr}")


def check_serving(cache):
    """A mix by name or from a file: a row for each number of ranks and type, right results, no option ignored."""
    small = ("--heads", "4", "--kv-heads", "2", "--head-dim", "16", "-n", "2", "-w", "0")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mix.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[{"keys": 300}, {"keys": 70, "queries": 70}, {"keys": 1}, {"keys": 900, "queries": 5}]')
        for page in ("0", "16", "64"):
            done = bench(cache, "--serving", path, *small, "--ranks", "1,3", "--dtype", "bf16,fp32", "--page", page,
                         "--check", "--json")
            expect(done.returncode == 0, f"--serving exits {done.returncode}: {done.stderr}")
            rows = json.loads(done.stdout or "[]")
            expect([(row["dtype"], row["ranks"]) for row in rows] == [(t, r) for t in ("bf16", "fp32") for r in (1, 3)],
                   f"rows: {rows}")
            for row in rows:
                expect((row["requests"], row["queries"], row["keys"], row["longest"]) == (4, 77, 1271, 900), f"{row}")
                expect(row["ok"] and row["max_error"] < 5e-3 and row["page"] == int(page), f"checked: {row}")
                read = 1271 * 2 * 2 * 16 * (2 if row["dtype"] == "bf16" else 4)
                expect(abs(row["read_bytes_per_s"] * row["median_s"] / read - 1) < 1e-6, f"bytes read: {row}")
                expect(row["peak_bytes_per_s"] > 0 and row["tokens_per_s"] > 0, f"rates: {row}")
        for text, words in (("[]", "no list"), ("{", "no JSON"), ('[{"queries": 1}]', "request 0 has no keys"),
                            *((f'[{{"keys": {keys}}}]', f"request 0 has keys {said}, no whole number from 1 on")
                              for keys, said in (("0", "0"), ("-5", "-5"), ("5.5", "5.5"), ("1e30", "1e+30"), ('"5"', "string"))),
                            ('[{"keys": 3}, {"keys": 3, "queries": 4}]', "request 1 has more queries than keys"),
                            ('[{"keys": 3, "page": 4}]', "request 0 has a page")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = bench(cache, "--serving", path, *small)
            expect(done.returncode == 2 and words in done.stderr, f"a mix of {text}: {done.stderr}")
    for more, words in ((("--serving", "mix:none"), "no such mix"), (("--page", "16"), "--serving"),
                        (("--serving", "mix:decode", "--seq", "64"), "--seq"),
                        (("--serving", "mix:decode", "--page", "24"), "--page 24"),
                        (("--serving", "mix:decode", "--dtype", "fp64"), "cpu serves no such problem (cpu computes fp32")):
        done = bench(cache, *small, *more)
        expect(done.returncode == 2 and words in done.stderr, f"{more}: {done.stderr}")
        expect(re.search(r"\S \(.+\): \S|\S \(.+\)$|: see ", done.stderr.strip()), f"{more}: not worded: {done.stderr}")


def check_memory(cache):
    """What needs more than --memory is skipped, also by auto; rows that fit stay."""
    arguments = [*SHAPE, "--ranks", "4", "--schedule"]
    planned = subprocess.run([BINARY, "plan", *SHAPE[:6], "--ranks", "4", "--schedule", "ring,allgather", "--json"],
                             capture_output=True, text=True, timeout=60, check=True)
    needed = {row["schedule"]: row["memory_bytes"] for row in json.loads(planned.stdout)}
    expect(needed["ring"] < needed["allgather"], f"memory of the two schedules: {needed}")
    done = bench(cache, *arguments, "ring,allgather", "--memory", str(needed["ring"]), "--json")
    expect(done.returncode == 0, f"one schedule that does not fit: exit {done.returncode}: {done.stderr}")
    expect([row["schedule"] for row in json.loads(done.stdout or "[]")] == ["ring"], f"rows left: {done.stdout}")
    expect(re.search(r"skipped allgather on 4 ranks: forward needs .* \(--memory allows", done.stderr),
           f"not listed as skipped: {done.stderr}")
    done = bench(cache, *arguments, "ring,auto", "--memory", "1")
    expect(done.returncode == 2 and "auto on 4 ranks: no schedule fits" in done.stderr,
           f"nothing fits: exit {done.returncode}: {done.stderr}")


def check_infinite(cache):
    """An error that is not finite is null in JSON, inf in the table."""
    arguments = [*SHAPE, "--schedule", "ring", "--scale", "2e38", "-c", "-q"]
    row = json.loads(bench(cache, *arguments, "--json").stdout)[0]
    expect((row["ok"], row["max_error"]) == (False, None), f"not wrong without bounds: {row}")
    done = bench(cache, *arguments)
    head, _, cells = ([cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines())
    expect(done.returncode == 1 and cells[head.index("error")] == "inf", f"the table shows {done.stdout}")


def check_kernels(cache):
    rows = rows_of(cache, "--kernel", "all", "--seq", "64,96", "--heads", "2", "--head-dim", "16", "-n", "1")
    kinds = [(row["kernel"], row["seq"], row["pass"], row["coverage"]) for row in rows]
    tiles, passes, coverages = (64, 96), ("forward", "backward"), ("full", "causal")
    expect(kinds == [("attend", tile, one, coverage) for tile in tiles for coverage in coverages for one in passes] +
           [("attend-variants", tile, one, coverage) for tile in tiles for one in passes for coverage in coverages] +
           [("merge", None, None, None), ("copy", None, None, None)], f"the kernels are {kinds}")
    for row in rows:
        missing = [field for field in KERNEL_FIELDS if field not in row]
        expect(not missing, f"a kernel's row lacks {missing}")
        expect((row["gflops"] or row["bytes_per_s"]) > 0, f"no rate in {row}")
        if row["kernel"] != "attend-variants":
            continue
        expect(row["variant"] == "usual" and row["ok"] and row["fastest"], f"the only kernel is not the fastest: {row}")
        expect(0 < row["error"]["o"] < row["error"]["tolerance"], f"not compared with float64: {row}")


def check_failing_kernels(cache):
    """A kernel that fails, here for memory that no machine has, is said and leaves the others their rows."""
    done = bench(cache, "--kernel", "attend-variants", "--seq", "65536", "--heads", "4096", "--head-dim", "256",
                 "-n", "1", "--json")
    rows = json.loads(done.stdout or "[]")
    failed = [row for row in rows if row["kernel"] == "attend-variants"]
    expect(done.returncode == 3 and "memory" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    expect(len(rows) == 4 and len(failed) == 4, f"rows are lost: {rows}")
    expect(all(row["ok"] is False and "memory" in row["failure"] and row["gflops"] is None for row in failed),
           f"failed kernels look well: {failed}")


def check_columns(cache):
    """Of CSV, also where a field has fields of its own in some rows only."""
    done = bench(cache, "--kernel", "merge,attend-variants", "--seq", "64", *SMALL_HEADS, "-n", "1", "-o", "csv")
    lines = list(csv.reader(io.StringIO(done.stdout)))
    expect(len(lines) == 6 and len({len(line) for line in lines}) == 1, f"columns differ: {done.stdout}")
    expect(lines[1][lines[0].index("error.o")] == "" and float(lines[2][lines[0].index("error.o")]) > 0,
           f"columns are shifted: {done.stdout}")


def check_device_options(cache):
    """What the device does not know is refused before anything is measured or stored, with rows and without."""
    for rows in ([], ["--seq", "96", "--schedule", "ring"]):
        done = bench(cache, "--calibrate", "--backend", "reference", "--graphs", *SMALL_HEADS, *rows)
        expect(done.returncode == 2 and "graphs for a device of the host" in done.stderr,
               f"graphs on cores: exit {done.returncode}: {done.stderr}")
    stored = os.path.join(cache, "distattn")
    expect(not os.path.exists(stored) or not os.listdir(stored), "a calibration that was refused is stored")


def check_calibration(cache):
    """Stored, read again, and used: the same prediction from the store and from what was printed."""
    before = rows_of(cache, *SHAPE, "--schedule", "ring")
    done = subprocess.run([BINARY, "info", "--json"], capture_output=True, text=True, check=True)
    cores = json.loads(done.stdout)["cpu"]["cores"]
    os.makedirs(os.path.join(cache, "distattn"), exist_ok=True)
    os.mkfifo(os.path.join(cache, "distattn", f"machine-{os.uname().nodename}-{cores}.json"))  # replaced, not waited for
    done = bench(cache, "--calibrate", *SMALL_HEADS, "--json")
    expect(done.returncode == 0, f"calibration exits {done.returncode}: {done.stderr}")
    names = os.listdir(os.path.join(cache, "distattn"))
    expect(len(names) == 1 and names[0].startswith("machine-"), f"stored: {names}")
    stored = os.path.join(cache, "distattn", names[0])
    expect(json.loads(done.stdout) == json.load(open(stored, encoding="utf-8")), "stored and printed machines differ")
    after = rows_of(cache, *SHAPE, "--schedule", "ring")
    expect(before[0]["predicted_s"] != after[0]["predicted_s"], "the stored machine is not used")
    measured = json.loads(done.stdout)["backend"]
    few = json.loads(done.stdout).get("few_queries", {})
    expect(set(few) == ({"queries", "fp32", "bf16", "fp16"} if measured == "cpu" else set()),
           f"few queries of {measured} are measured as {few}")
    expect(measured == after[0]["backend"], f"the calibration says {measured} was measured")
    other = bench(cache, *SHAPE, "--schedule", "ring", "--backend", "reference", "--json")
    expect((json.loads(other.stdout)[0]["predicted_s"] is None) == (measured != "reference"),
           "a backend is predicted from another one's calibration")
    expect(("nothing is predicted for backend reference" in other.stderr) == (measured != "reference"),
           f"what is not predicted is not said: {other.stderr}")
    for command in (["info"], ["plan", *SHAPE[:6], "--ranks", "2"]):
        said = subprocess.run([BINARY, *command], capture_output=True, text=True, check=False,
                              env={**os.environ, "XDG_CACHE_HOME": cache})
        expect("measured here" in said.stdout + said.stderr, f"{command[0]} does not say when this was measured")
    done = bench(cache, "--calibrate", *SMALL_HEADS, "--seq", "96", "-n", "3", "--schedule", "ring", "--ranks", "2",
                 "--backward", "--deterministic")
    with open(stored, encoding="utf-8") as file:
        how = json.load(file)["sources"]
    expect(any(f"{measured}, deterministic, " in source for source in how.values()), f"measured as asked for: {how}")
    expect(done.returncode == 0, f"a calibration beside rows exits {done.returncode}: {done.stderr}")
    expect(re.search(r"measured/predicted from [\d.]+ \(ring \w+ on 2 ranks\) to [\d.]+ \(ring", done.stderr),
           f"no ratios after a calibration: {done.stderr}")
    expect(done.stdout.count("| ring") == 2, "a calibration beside rows hides them")
    unwritable = bench("/proc", "--calibrate", *SMALL_HEADS)
    expect(unwritable.returncode == 3, f"a calibration that cannot be stored exits {unwritable.returncode}")


checks = [check_rows, check_order, check_forms, check_gates, check_planning, check_serving, check_memory, check_infinite,
          check_kernels, check_failing_kernels, check_columns, check_device_options, check_calibration]
with tempfile.TemporaryDirectory() as folder:
    for check in checks:
        check(folder)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
