"""One binary, however its ranks are started: the same files to the last bit, results on rank 0 alone."""

import filecmp
import json
import math
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

from ranks import (BINARY, MPIRUN, SCRATCH, clean_up, expect, expect_nothing_left, finish, free_port, leftovers, start,
                   start_ranks, under_mpirun, under_srun, under_torchrun)

SHAPE = ("--random", "--seq", "203", "--batch", "2", "--heads", "6", "--kv-heads", "3", "--head-dim", "16")
FILES = ("o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy")
DATA = pathlib.Path(__file__).parent.parent / "data" / "minilm-layer2.safetensors"
SCHEDULES = {2: ["ulysses", "mesh:1x2x1:striped", "mesh:1x1x2:striped:16"], 3: ["balanced", "striped-ring"],
             4: ["ring/burst", "zigzag-ring", "attention2d", "usp:2"], 8: ["zigzag-ring"]}


def by_file(ranks, *arguments):
    return finish(start_ranks(ranks, *arguments))


STARTS = {"file": by_file, "torchrun": under_torchrun, "srun": under_srun}
if MPIRUN:
    STARTS["mpirun"] = under_mpirun


def run_here(ranks, out, *arguments):
    [(code, output, errors)] = finish([start([BINARY, *arguments, "--ranks", ranks, "--out", out])])
    expect(code == 0, arguments, errors)
    return json.loads(output)


def expect_same_errors(one, other):
    """Of the same results, whoever computed what they should be: threads of an oracle add in other orders."""
    errors, others = one["error"], other["error"]
    expect(errors.keys() == others.keys(), errors, others)
    for name, error in errors.items():
        expect(error == others[name] or math.isclose(error, others[name], rel_tol=1e-5), name, errors, others)
    for mine, theirs in zip(one["error_parts"], other["error_parts"], strict=True):
        expect(mine["ok"] and mine["where"] == theirs["where"], mine, theirs)


def the_oracle_is_shared():
    """Fewer groups of heads than processes, and a round of which some are left, with what belongs to heads."""
    for ranks, kv_heads in ((4, 1), (4, 3), (3, 5)):
        shape = ("run", "--random", "--seq", "96", "--batch", "2", "--heads", 2 * kv_heads, "--kv-heads", kv_heads,
                 "--head-dim", "8", "--schedule", "zigzag-ring", "--backward", "--check", "--json", "--backend", "reference",
                 "--alibi", "standard", "--sink-logits", "random", "--max-logit", "--dropout", "0.2")
        here = run_here(ranks, SCRATCH / f"oracle-{ranks}-{kv_heads}", *shape)
        ends = by_file(ranks, *shape)
        expect(all(code == 0 for code, _, _ in ends), ends)
        expect_same_errors(json.loads(ends[0][1]), here)


def same_everywhere(ranks, schedule, starts, *arguments):
    arguments = ("run", *arguments, "--schedule", schedule, "--backward", "--check", "--json", "--backend",
                 "reference")
    here = SCRATCH / f"here-{ranks}-{schedule.replace('/', '-')}"
    threads = run_here(ranks, here, *arguments)
    for name in starts:
        there = SCRATCH / f"{name}-{here.name}"
        ends = STARTS[name](ranks, *arguments, "--out", there)
        expect(all(code == 0 for code, _, _ in ends), name, ranks, schedule, ends)
        expect([end for end in ends if end[1]] == ends[:1], "more than rank 0 prints:", name, ends)
        found = json.loads(ends[0][1])
        expect((found["ranks"], found["transport"]) == (ranks, "ucx"), name, found)
        for field in ("steps", "messages", "bytes_sent_max", "peak_remote_bytes"):
            expect(found[field] == threads[field], name, field, found[field], threads[field])
        expect_same_errors(found, threads)
        expect(sorted(f.name for f in there.iterdir()) == sorted(FILES), name, "wrote", list(there.iterdir()))
        _, differ, missing = filecmp.cmpfiles(here, there, FILES, shallow=False)
        expect(not differ and not missing, name, ranks, schedule, "differs in", differ, missing)
        print(f"{name}: {ranks} ranks, {schedule}: the same bits", flush=True)


def training_is_the_same():
    model = ("step", "--layers", "1", "--hidden", "32", "--heads", "4", "--seq", "48", "--steps", "2", "--verify",
             "--json", "--schedule", "auto")
    [(code, here, errors)] = finish([start([BINARY, *model, "--ranks", "2"])])
    expect(code == 0, errors)
    ends = by_file(2, *model)
    expect(all(end[0] == 0 for end in ends), ends)
    for one, other in zip(json.loads(here), json.loads(ends[0][1])):
        expect(all(one[f] == other[f] for f in ("loss", "grad_norm", "gradient_error", "bytes_sent_max")), one, other)
    print("training: the same losses and gradients", flush=True)


def texts_are_compared():
    for name, text in (("one", "attention " * 9), ("other", "attention " * 8 + "attentiom ")):
        (SCRATCH / name).write_text(text)
    model = ("step", "--layers", "1", "--hidden", "32", "--heads", "4", "--seq", "16", "--schedule", "ring", "--text")
    ends = finish(start_ranks(2, *model, own=lambda rank: [SCRATCH / "one"]))
    expect(all(end[0] == 0 for end in ends), ends)
    ends = finish(start_ranks(2, *model, own=lambda rank: [SCRATCH / ("one", "other")[rank]]))
    expect(all(code == 3 and "rank 1 differs from rank 0 in the text" in errors for code, _, errors in ends), ends)


def drawings_hold_all_ranks():
    trace = SCRATCH / "trace.json"
    ends = by_file(3, "run", *SHAPE, "--schedule", "ring", "--trace", trace, "--svg", SCRATCH / "t.svg", "--html",
                   SCRATCH / "t.html", "-n", "3")
    expect(all(end[0] == 0 for end in ends), ends)
    text = trace.read_text()
    expect(all(f"rank {rank}" in text for rank in range(3)), "a rank is missing in", trace)
    page = (SCRATCH / "t.html").read_text()
    data = json.loads(page[page.index('id="data">') + len('id="data">'):].split("</script>")[0])
    [one] = data["schedules"][0]["passes"]
    expect(len(one["steps"]) == 3 and len(one["timelines"]) == 2, "a rank or a timeline is missing on the page")


def programs_are_compared():
    show = ("show", "--seq", "203", "--batch", "2", "--heads", "6", "--kv-heads", "3", "--head-dim", "16", "--format",
            "json", "--ranks", "2", "--schedule")
    for name in ("ring", "ulysses"):
        [(code, output, errors)] = finish([start([BINARY, *show, name])])
        expect(code == 0, errors)
        (SCRATCH / f"{name}.json").write_text(output)
    run = ("run", *SHAPE[:1], "--program")
    ends = finish(start_ranks(2, *run, own=lambda rank: [SCRATCH / "ring.json"]))
    expect(all(end[0] == 0 for end in ends), ends)
    ends = finish(start_ranks(2, *run, own=lambda rank: [SCRATCH / ("ring.json", "ulysses.json")[rank]]))
    expect(all(code == 3 and "rank 1 differs from rank 0" in errors for code, _, errors in ends), ends)


def options_are_compared():
    run = ("run", *SHAPE, "--schedule", "zigzag-ring")
    nodes = ("--node-size", "1")
    for common, own in (((), ("--mode", "serial")), ((), ("--backend", "reference")), ((), nodes),
                        (nodes, ("--ahead", "1"))):
        ends = finish(start_ranks(2, *run, *common, own=lambda rank: own if rank == 1 else ()))
        differs = "rank 1 differs from rank 0 in its options"
        expect(all(code == 3 and differs in errors for code, _, errors in ends), own, ends)


def backends_are_compared():
    """One line with the two that differ and nothing of the rest."""
    [(_, output, _)] = finish([start([BINARY, "info", "--json"])])
    spaces = [each["name"] for each in json.loads(output)["backends"]
              if each["name"].startswith("kokkos:") and each["usable"]]
    for first, second in zip(["cpu", "reference", *spaces], ["reference", *spaces, "cpu"]):
        for command, differ in ((("run", *SHAPE), "--backend {} against --backend {}"),
                                (("bench", *SHAPE[1:]), "backend {} () against backend {} ()"),
                                (("validate", "--schedule", "ring"), "ring on {} against ring on {}")):
            names = (first, second)
            ends = finish(start_ranks(2, *command, own=lambda rank, names=names: ["--backend", names[rank]]))
            line = (f"distattn: rank 1 differs from rank 0 in its options ({differ.format(second, first)}): give all "
                    "ranks the same input and options\n")
            expect(all(end == (3, "", line) for end in ends), command, ends)


def who_never_comes_is_a_timeout():
    if not MPIRUN:
        return
    [(code, _, errors)] = under_mpirun(1, "run", *SHAPE, "--timeout", "2", beside=("sleep", "30"))
    expect(code == 4 and "rank 1 did not come" in errors, code, errors)


def a_contradiction_is_usage():
    """For every rank, whichever is first to say so."""
    for _ in range(3):
        ends = under_torchrun(3, "run", *SHAPE, "--ranks", "2")
        expect(all(code == 2 and "by torchrun come 3" in errors for code, _, errors in ends), ends)


def plans_are_for_those_that_were_started():
    plan = ("plan", "--seq", "1K", "--heads", "4", "--head-dim", "16", "--schedule", "ring", "--json")
    starts = [under_torchrun, under_srun] + ([under_mpirun] if MPIRUN else [])
    for under in starts:
        for ranks, arguments in ((3, plan), (64, (*plan, "--ranks", "64"))):
            ends = under(3, *arguments)
            expect(all(code == 0 for code, _, _ in ends), ends)
            expect([row["ranks"] for row in json.loads(ends[0][1])] == [ranks], under.__name__, ends[0])
            expect(ends[0][2].count("predicted on this") == 1 and not any(out or err for _, out, err in ends[1:]), ends)


def torchrun_within_mpirun():
    if not MPIRUN:
        return
    port = free_port()
    inner = ('for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost '
             f'MASTER_PORT={port} TORCHELASTIC_RUN_ID=none "$@" & done; wait')
    options = ("--allow-run-as-root", "-n", "1", "sh", "-c", inner, "sh")
    [(code, output, errors)] = finish([start([MPIRUN, *options, BINARY, "run", *SHAPE, "--json"])])
    expect(code == 0 and json.loads(output)["ranks"] == 2, code, output, errors)


def one_of_several_is_not_alone():
    for rank, size in (("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        [(code, output, errors)] = finish([start([BINARY, "run", *SHAPE], **{rank: "1", size: "2"})])
        expect(code == 3 and not output and f"{rank}=1 of {size}=2" in errors and "cannot find the others" in errors, code, errors)
        alone = [BINARY, "run", *SHAPE, "--bootstrap", "inproc"]
        [(code, _, errors)] = finish([start(alone, **{rank: "0", size: "2"})])
        expect(code == 0, code, errors)


def interrupted_while_they_meet():
    meeting = SCRATCH / "interrupted"
    port = str(free_port())
    names = (meeting, pathlib.Path(tempfile.gettempdir()) / f"distattn-{os.geteuid()}-{port}.token")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
             "MASTER_PORT": port}
    waits = [start([BINARY, "run", *SHAPE, "--ranks", "2", "--bootstrap", f"file:{meeting}"]),
             start([BINARY, "run", *SHAPE], **place)]
    deadline = time.monotonic() + 20
    while not all(name.exists() and name.stat().st_size for name in names) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    for process in waits:
        process.send_signal(signal.SIGTERM)
    ends = finish(waits)
    expect(all(code == 130 and "interrupted" in errors for code, _, errors in ends), ends)
    expect(not any(name.exists() for name in names), "left behind:", names)


def too_few_files():
    """UCX 1.13 itself may abort then."""
    if "sanitized" in sys.argv:  # it looks into objects through a pipe, and calls those wrong that it has none for
        return print("too few files: skipped (a sanitizer needs files of its own)", flush=True)
    for most, words in ((12, "more files of 12"), (8, "may open 0 more files of 8")):
        few = {1: lambda most=most: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))}
        ends = finish(start_ranks(2, "run", *SHAPE, before_exec=few))
        expect(all(code == 3 and words in errors for code, _, errors in ends), ends)
    return None


def without_shared_memory():
    """The reason is the true one."""
    def reason(words, prefix=lambda rank: (), before_exec=None):
        ends = finish(start_ranks(2, "run", *SHAPE, prefix=prefix, before_exec=before_exec, UCX_TLS="sm,self"))
        expect(all(code == 3 for code, _, _ in ends) and any(words in errors for _, _, errors in ends), words, ends)
    small = {rank: lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)) for rank in range(2)}
    reason("65536 bytes, holds for shared memory too): raise ulimit -f", before_exec=small)
    apart = ("unshare", "-m", "sh", "-c")
    if subprocess.run([*apart, "mount -t tmpfs none /dev/shm"], capture_output=True, check=False).returncode != 0:
        return print("file systems of their own: skipped (unshare -m is not allowed)", flush=True)
    for options, words in (("ro", "/dev/shm: Read-only file system"), ("nr_inodes=1", "/dev/shm may have no more files")):
        mount = f'mount -t tmpfs -o {options} none /dev/shm && exec "$@"'
        reason(words, prefix=lambda rank, mount=mount: (*apart, mount, "sh"))
    if "sanitized" in sys.argv:
        return print("a hidden /proc: skipped (a sanitizer reads it)", flush=True)
    hidden = 'mount -t tmpfs none /proc && exec "$@"'  # who cannot count open files does not say that none are left
    ends = finish(start_ranks(2, "run", *SHAPE, prefix=lambda rank: (*apart, hidden, "sh")))
    expect(all(code == 3 and "let this process see /proc" in errors and "UCX  ERROR" not in errors
               for code, _, errors in ends), ends)
    return None


def ranks_in_namespaces_of_their_own():
    """One in a container, another on its host: each has other numbers for processes, or other segments."""
    kinds = {"processes": ("unshare", "-p", "-f", "--mount-proc"), "segments": ("unshare", "-i"),
             "files of shared memory": ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")}
    for what, apart in kinds.items():
        if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
            print(what, "of their own: skipped (unshare is not allowed)", flush=True)
            continue
        for inside in ((0,), (1,), (0, 1)):
            ends = finish(start_ranks(2, "run", *SHAPE, prefix=lambda rank, them=inside: apart if rank in them else ()))
            expect(all(code == 0 for code, _, _ in ends), what, inside, ends)
    print("ranks in namespaces of their own: meet and exchange", flush=True)


def transports_that_do_not_meet():
    """No rank has failed there."""
    for words in (("self", "self"), ("tcp", "posix,self")):
        ends = finish(start_ranks(2, "run", *SHAPE, only={rank: {"UCX_TLS": words[rank]} for rank in range(2)}))
        told = [errors for code, _, errors in ends if "no transport that both ranks use" in errors]
        expect(all(code == 3 for code, _, _ in ends) and told, words, ends)
        expect(any(f"UCX_TLS={word}" in errors for word in words for errors in told), words, ends)


def main():
    before = leftovers()
    for ranks, schedules in SCHEDULES.items():
        for i, schedule in enumerate(schedules[:1] if "sanitized" in sys.argv else schedules):
            same_everywhere(ranks, schedule, STARTS if ranks == 4 and i == 0 else ["file"], *SHAPE)
    same_everywhere(4, "burst:zigzag", ["torchrun"], "--tensors", DATA)
    the_oracle_is_shared()
    training_is_the_same()
    texts_are_compared()
    drawings_hold_all_ranks()
    programs_are_compared()
    options_are_compared()
    backends_are_compared()
    who_never_comes_is_a_timeout()
    a_contradiction_is_usage()
    plans_are_for_those_that_were_started()
    torchrun_within_mpirun()
    one_of_several_is_not_alone()
    interrupted_while_they_meet()
    too_few_files()
    without_shared_memory()
    ranks_in_namespaces_of_their_own()
    transports_that_do_not_meet()
    expect_nothing_left(before)


try:
    main()
finally:
    clean_up()
