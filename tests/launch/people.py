"""Launchers as people use them: interactive steps, one process, several runs in a script and at once, variables that
are not all there."""

import json
import os
import pathlib
import socket
import time

from ranks import (BINARY, MPIRUN, SCRATCH, clean_up, expect, expect_nothing_left, finish, free_port, leftovers, start)

SHAPE = ("--random", "--seq", "96", "--heads", "2", "--head-dim", "16")
RUN = (BINARY, "run", *SHAPE, "--threads", "1", "--schedule", "ring", "--backend", "reference", "-q")
STEP = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"}
ALLOW = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


def step_of(tasks, task=0):
    return {**STEP, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task), "SLURM_NTASKS": str(tasks),
            "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_TASKS_PER_NODE": str(tasks)}


def by_hand(rank, size, port, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), **more}


def one(command, **variables):
    [end] = finish([start(command, **variables)], 120)
    return end


def findings(**variables):
    code, output, errors = one([BINARY, "info", "--why-this-launcher", "--json"], **variables)
    expect(code == 0, "info --why-this-launcher:", errors)
    return json.loads(output)


def a_launcher_of_one_process_is_none():
    """srun --pty bash, a notebook under mpirun -n 1, torchrun of one worker: their ranks are threads."""
    port = free_port()
    starts = {"srun": step_of(1), "torchrun": by_hand(0, 1, port, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1"),
              "mpirun": {"PMIX_NAMESPACE": "1", "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0",
                         "OMPI_COMM_WORLD_SIZE": "1"}}
    for name, variables in starts.items():
        code, output, errors = one([*RUN, "--ranks", "4", "--json"], **variables)
        expect(code == 0, name, errors)
        found = json.loads(output)
        expect((found["ranks"], found["transport"]) == (4, "inproc"), name, found)
        expect(findings(**variables)["bootstrap"] == "inproc", name)
    ranks = {}
    for name, variables in (("a step", step_of(1)), ("nobody", {})):
        code, output, errors = one([BINARY, "validate", "-q", "--json", "--backend", "reference", "--schedule", "ring"],
                                   **variables)
        expect(code == 0, errors)
        ranks[name] = sorted({row["ranks"] for row in json.loads(output)})
    expect(len(ranks["a step"]) > 1 and ranks["a step"] == ranks["nobody"], "validate tests", ranks)
    code, _, errors = one([BINARY, "validate", "--ranks", "1-3", "--seq", "31", "--heads", "2", "--head-dim", "8",
                           "--backend", "reference", "--schedule", "ring", "-q"], **step_of(1))
    expect(code == 0, errors)
    code, output, errors = one([*RUN, "--json", "--transport", "ucx"], **step_of(1))  # which asks for a process
    expect(code == 0 and json.loads(output)["transport"] == "ucx", code, output, errors)
    print("a launcher of one process: threads", flush=True)


def a_contradiction_stays_one():
    ends = finish([start([*RUN, "--ranks", "4"], **step_of(2, task)) for task in range(2)])
    expect(all(code == 2 and "by slurm come 2" in errors and "--bootstrap inproc" in errors
               for code, _, errors in ends), ends)
    code, _, errors = one([*RUN, "--ranks", "4", "--bootstrap", "inproc"], **step_of(2))
    expect(code == 0, errors)


def what_is_no_step():
    """The shell of salloc, a batch script: a job, but no step of srun."""
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
    for more in ({}, {"SLURM_STEP_ID": "4294967290"}):
        code, output, errors = one([*RUN, "--ranks", "3", "--json"], **job, **more)
        expect(code == 0 and json.loads(output)["ranks"] == 3, code, output, errors)


def scripts_with_two_runs():
    """One after the other and at once, with different seeds, so that ranks that met the wrong run would say so."""
    one_run = " ".join(map(str, RUN))
    if MPIRUN:
        for script in (f"{one_run} --seed 1 && {one_run} --seed 2 && {one_run} --seed 3",
                       f"{one_run} --seed 1 & p=$!; {one_run} --seed 2 && wait $p"):
            code, output, errors = one([MPIRUN, *ALLOW, "-n", "2", "sh", "-c", script])
            expect(code == 0 and output.count("schedule") == script.count("--seed"), script, code, output, errors)
        # A server of PMIx, which mpirun's variables spare otherwise, serves each rank once.
        variables = " ".join(f"{name}={value}" for name, value in step_of(2).items())
        as_step = variables.replace("PROCID=0", "PROCID=$R").replace("LOCALID=0", "LOCALID=$R")
        asks = f"R=$OMPI_COMM_WORLD_RANK; unset OMPI_COMM_WORLD_SIZE; {one_run} && "
        code, output, errors = one([MPIRUN, *ALLOW, "-n", "2", "sh", "-c", asks + f"export {as_step} && {one_run}"])
        expect(code == 0 and output.count("schedule") == 2, code, output, errors)
        code, output, errors = one([MPIRUN, *ALLOW, "-n", "2", "sh", "-c", asks + one_run])
        expect(code == 3 and "PMIx serves this rank no more" in errors, code, output, errors)
        print("runs of one mpirun: each meets its own", flush=True)
    for round_ in range(3):
        both = [start([*RUN, "--seed", seed], **step_of(2, task)) for task in range(2) for seed in (1, 2)]
        ends = finish(both)
        expect(all(code == 0 for code, _, _ in ends), "two runs of one step, round", round_, ends)
    print("two runs at once in a step: each meets its own", flush=True)
    ends = finish([start([*RUN, "--seed", "1", *(("--trace", SCRATCH / "t.json") if task == 0 else ())],
                         **step_of(2, task)) for task in range(2)])
    expect(all(code == 0 for code, _, _ in ends), "ranks whose commands differ:", ends)
    ends = finish([start([*RUN, "--seed", task], **step_of(2, task)) for task in range(2)])
    expect(all(code == 3 and "rank 1 differs from rank 0" in errors for code, _, errors in ends), ends)


def several_at_one_port():
    """Runs that begin at once where nothing but a port is said, and where a step has one token: three with commands of
    their own, three with equal ones, of which each must get one process a rank. Long enough to be there together."""
    def place(rank, port):
        return by_hand(rank, 2, port, LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    for who, there in (("a port", lambda rank, port: place(rank, port)), ("a step", lambda rank, _: step_of(2, rank))):
        for seeds in ((1, 2, 3), (1, 1, 1)):
            port = free_port()
            ends = finish([start([*RUN, "-n", "200", "--seed", seed], **there(rank, port))
                           for rank in range(2) for seed in seeds])
            expect(all(code == 0 for code, _, _ in ends), who, "with seeds", seeds, ends)
    port = free_port()  # and where one waits for its ranks, and a dead one has left its token
    first = start([*RUN, "--seed", "1"], **place(0, port))
    time.sleep(1)
    dead = start([*RUN, "--seed", "4"], **place(0, port))
    second = [start([*RUN, "--seed", "2"], **place(rank, port)) for rank in range(2)]
    expect(all(code == 0 for code, _, _ in finish(second)), "the second run")
    dead.kill()
    dead.communicate()
    last = start([*RUN, "--seed", "1"], **place(1, port))
    expect(all(code == 0 for code, _, _ in finish([first, last])), "the first run")
    print("runs at one port: each meets its own", flush=True)


def two_at_one_file():
    meeting = SCRATCH / "meeting"
    at_file = [*RUN, "--ranks", "2", "--bootstrap", f"file:{meeting}"]
    dead = start([*at_file, "--timeout", "60"], DISTATTN_RANK="0")
    while not (meeting.exists() and "claim" in meeting.read_text()):
        time.sleep(0.02)
    dead.kill()
    dead.communicate()
    for _ in range(2):  # at what a dead run has left, and again at once
        ends = finish([start(at_file, DISTATTN_RANK=str(rank)) for rank in range(2)])
        expect(all(code == 0 for code, _, _ in ends), ends)
    print("one file: what a dead run left is no harm", flush=True)


def what_can_be_derived():
    """A rank and a size say enough, whoever set them."""
    names = {"PyTorchJob": ("RANK", "WORLD_SIZE"), "MPICH": ("PMI_RANK", "PMI_SIZE"),
             "Flux": ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"), "jsrun": ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
             "Kubernetes": ("JOB_COMPLETION_INDEX", "WORLD_SIZE")}
    for who, (rank_name, size_name) in names.items():
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        ends = finish([start([*RUN, "--json"], **{rank_name: str(rank), size_name: "3"}, **meeting)
                       for rank in range(3)])
        expect(all(code == 0 for code, _, _ in ends), who, ends)
        expect(json.loads(ends[0][1])["ranks"] == 3, who, ends[0])
        found = findings(**{rank_name: "0", size_name: "3"}, **meeting)
        expect(found["bootstrap"] == "torchrun" and found["local_ranks"] is None, who, found)
    print("a rank, a size and an address: ranks meet, and find out who shares a node", flush=True)


def what_is_missing_is_said():
    for rank_name, size_name, who in (("PMI_RANK", "PMI_SIZE", "MPICH or Intel MPI"), ("RANK", "WORLD_SIZE", "torchrun"),
                                      ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux")):
        code, output, errors = one(RUN, **{rank_name: "1", size_name: "2"})
        expect(code == 3 and not output and f"{rank_name}=1 of {size_name}=2" in errors and who in errors
               and "MASTER_ADDR, MASTER_PORT are not set" in errors and "file:PATH" in errors, code, errors)
    code, _, errors = one(RUN, WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29500")
    expect(code == 3 and "RANK is not set" in errors, code, errors)
    code, _, errors = one(RUN, **{**by_hand(1, 2, 29500), "MASTER_ADDR": "head"})
    expect(code == 3 and "DISTATTN_TOKEN" in errors, code, errors)
    code, _, errors = one(RUN, JOB_COMPLETION_INDEX="3")  # one of many jobs that have nothing to do with each other
    expect(code == 0, errors)


def tables_are_as_in_a_file():
    """Open MPI gives its ranks pseudo-terminals, wherever its own output goes."""
    if not MPIRUN:
        return
    validate = (BINARY, "validate", "--seq", "24", "--heads", "2", "--head-dim", "16", "--schedule", "ring", "-q",
                "--backend", "reference", "--threads", "1")
    code, output, errors = one([MPIRUN, *ALLOW, "-n", "2", *validate])
    alone = one([*validate, "--ranks", "2"])[1]
    expect(code == 0 and output.count("\n") == alone.count("\n"), output, alone, errors)


def a_master_that_is_told_localhost():
    """As in a PyTorchJob, whose workers are told the name of its service."""
    port, token = free_port(), {"DISTATTN_TOKEN": "sesame"}
    elsewhere = [at for at in socket.gethostbyname_ex(socket.gethostname())[2] if not at.startswith("127.")]
    if elsewhere:
        places = [by_hand(0, 2, port, **token), {**by_hand(1, 2, port, **token), "MASTER_ADDR": elsewhere[0]}]
        ends = finish([start(RUN, **place) for place in places])
        expect(all(code == 0 for code, _, _ in ends), ends)
    code, _, errors = one([*RUN, "--timeout", "2"], **by_hand(0, 2, free_port()))
    expect(code == 4 and "this machine alone" in errors and "set DISTATTN_TOKEN" in errors, code, errors)
    port = free_port()
    ends = finish([start(RUN, **{**by_hand(rank, 2, port), "MASTER_ADDR": name})
                   for rank, name in enumerate(("[::1]", "LOCALHOST."))])
    expect(all(code == 0 for code, _, _ in ends), ends)
    code, _, errors = one(RUN, **{**by_hand(0, 2, port), "MASTER_ADDR": ""})
    expect(code == 3 and "MASTER_ADDR is empty" in errors, code, errors)


def a_size_that_a_script_has_exported():
    """To each task of a step, which would be runs of one rank that know nothing of each other."""
    exported = by_hand(0, 1, free_port())
    ends = finish([start([*RUN, "--json"], **step_of(2, task), **exported) for task in range(2)])
    expect(all(code == 0 for code, _, _ in ends) and json.loads(ends[0][1])["ranks"] == 2 and not ends[1][1], ends)


def ports_that_are_for_others():
    """A port below 1024 is not taken, but not for everybody."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first <= 88:
        return print("ports of the administrator: skipped (everybody may have port 81 here)", flush=True)
    nobody = os.geteuid() or 65534
    ends = finish([start(RUN, before_exec=lambda: os.geteuid() == nobody or os.setuid(nobody), **by_hand(0, 2, 81))])
    expect(ends[0][0] == 3 and "ports 81 to 88 (Permission denied)" in ends[0][2], ends)
    return None


def the_choice_is_explained():
    found = findings(**step_of(2), DISTATTN_TOKEN="sesame")
    expect((found["bootstrap"], found["ranks"], found["local_rank"], found["local_ranks"]) == ("slurm", 2, 0, 2), found)
    expect(found["variables"]["SLURM_PROCID"] == "0" and "sesame" not in json.dumps(found), found)
    ways = {way["name"]: way for way in found["bootstraps"]}
    expect(ways["slurm"]["chosen"] and "PMIX_NAMESPACE" in ways["pmix"]["why"], ways)
    expect("MASTER_ADDR" in ways["torchrun"]["why"], ways)
    code, output, errors = one([BINARY, "info", "--why-this-launcher"], PMI_RANK="0", PMI_SIZE="2")
    expect(code == 0 and "no bootstrap: PMI_RANK=0 of PMI_SIZE=2" in output and "PMI_SIZE" in output, output, errors)
    print("info --why-this-launcher: explains", flush=True)


def wrong_options_are_told_once():
    """All ranks have the same command line; where one has another, that rank speaks."""
    def told(*arguments):
        [(code, output, errors)] = finish([start([MPIRUN, *ALLOW, *arguments])], 120)
        expect(code == 2 and output == "", code, output, errors)
        return [line for line in errors.splitlines() if line.startswith("distattn: ")]

    for wrong in (["--softcap", "-1"], ["--no-such-option"], ["--dropout", "1"], ["--seq", "many"]):
        lines = told("-n", "3", *RUN, *wrong)
        expect(len(lines) == 1 and wrong[0] in lines[0], wrong, lines)
    expect(len(told("-n", "2", BINARY, "nothing")) == 1, "a command")
    lines = [line for line in told("-n", "1", *RUN, ":", "-n", "1", *RUN, "--softcap", "-1")
             if "interrupted" not in line]  # by mpirun, for that
    expect(len(lines) == 1 and "--softcap" in lines[0], "of the second rank", lines)


def main():
    before = leftovers()
    if MPIRUN:
        wrong_options_are_told_once()
    a_launcher_of_one_process_is_none()
    a_contradiction_stays_one()
    what_is_no_step()
    scripts_with_two_runs()
    several_at_one_port()
    two_at_one_file()
    what_can_be_derived()
    what_is_missing_is_said()
    tables_are_as_in_a_file()
    a_master_that_is_told_localhost()
    a_size_that_a_script_has_exported()
    ports_that_are_for_others()
    the_choice_is_explained()
    expect_nothing_left(before)


try:
    main()
finally:
    clean_up()
