"""Ranks end with their launcher, however it ends; what no launcher started goes on."""

import os
import signal
import subprocess
import sys
import time

from ranks import BINARY, CLEAN, MPIRUN, SCRATCH, clean_up, expect, expect_nothing_left, free_port, leftovers, start

RUN = (BINARY, "run", "--random", "--seq", "1024", "--heads", "4", "--head-dim", "64", "--threads", "1", "--schedule",
       "ring", "--backend", "reference", "-q", "-n", "1000000")
SECONDS = 30  # other tests run at the same time


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids(count):
    """Of ranks, which have written down their own."""
    files = [SCRATCH / f"pid.{rank}" for rank in range(count)]
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if all(file.exists() and file.read_text().strip() for file in files):
            found = [int(file.read_text()) for file in files]
            for file in files:
                file.unlink()
            time.sleep(2)  # so that they have met
            expect(all(alive(pid) for pid in found), "ranks end by themselves")
            return found
        time.sleep(0.02)
    expect(False, "the ranks do not begin")
    return []


def expect_end(what, found):
    deadline = time.monotonic() + SECONDS
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in found if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    expect(not left, what, "does not end its ranks:", left)
    print(f"{what}: the ranks end", flush=True)


def under(what, launcher, count, how=signal.SIGKILL):
    launcher = subprocess.Popen(launcher, env=CLEAN, cwd=SCRATCH, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)
    found = pids(count)
    launcher.send_signal(how)
    launcher.wait()
    expect_end(what, found)


def mpirun_dies():
    if not MPIRUN:
        return print("mpirun is not installed", flush=True)
    options = (MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n")
    note = "echo $$ > pid.$OMPI_COMM_WORLD_RANK; "
    under("mpirun", [*options, "2", "sh", "-c", note + 'exec "$@"', "sh", *RUN], 2)
    within = 'sh -c \'echo $$ > pid.$OMPI_COMM_WORLD_RANK; exec "$@"\' sh "$@"; true'
    under("mpirun around scripts", [*options, "2", "bash", "-c", within, "bash", *RUN], 2)
    asks = ("env", "-u", "OMPI_COMM_WORLD_SIZE")  # the server of PMIx
    under("a server of PMIx", [*options, "2", *asks, "sh", "-c", note + 'exec "$@"', "sh", *RUN], 2)
    under("mpirun of one rank", [*options, "1", "sh", "-c", note + 'exec "$@"', "sh", *RUN, "--ranks", "2"], 1)
    return None


def started_by_hand(variables):
    """What starts two ranks with these variables, `$r` being the rank, and waits for them."""
    return ["bash", "-c", f'for r in 0 1; do {variables} sh -c \'echo $$ > pid.$0; exec "$@"\' $r "$@" & done; wait',
            "bash", *RUN]


def others_die():
    port = free_port()
    torchrun = (f"RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port}")
    slurm = (f"SLURM_JOB_ID={os.getpid()} SLURM_STEP_ID=0 SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NODEID=0 "
             "SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2 SLURM_NODELIST=localhost")
    under("torchrun", started_by_hand(torchrun + " TORCHELASTIC_RUN_ID=orphans"), 2)
    under("a step of srun", started_by_hand(slurm), 2)


def those_who_say_less_die():
    """Each starts two ranks with nothing but its variables, and an address to meet at."""
    size = "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2"
    for what, variables in (("a launcher of RANK and LOCAL_RANK", f"RANK=$r LOCAL_RANK=$r {size}"),
                            ("Flux", "FLUX_TASK_RANK=$r FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=$r FLUX_JOB_ID=f1"),
                            ("jsrun", "JSM_NAMESPACE_RANK=$r JSM_NAMESPACE_SIZE=2"),
                            ("MVAPICH", "MV2_COMM_WORLD_RANK=$r MV2_COMM_WORLD_SIZE=2"),
                            ("a launcher with PMI", "PMI_RANK=$r PMI_SIZE=2 PMI_FD=9"),
                            ("a launcher with PMI that names no line", "PMI_RANK=$r PMI_SIZE=2"),
                            ("Open MPI without PMIx", "OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2")):
        under(what, started_by_hand(f"{variables} MASTER_ADDR=localhost MASTER_PORT={free_port()}"), 2)
    as_python = ("import os, subprocess, sys; v = {**os.environ, 'WORLD_SIZE': '2', 'MASTER_ADDR': 'localhost', "
                 "'MASTER_PORT': sys.argv[1]}; [p.wait() for p in [subprocess.Popen(['sh', '-c', 'echo $$ > pid.$RANK; "
                 "exec \"$@\"', 'sh', *sys.argv[2:]], env={**v, 'RANK': r, 'LOCAL_RANK': r}) for r in '01']]")
    under("a launcher under nohup", ["nohup", sys.executable, "-c", as_python, str(free_port()), *RUN], 2)


def what_no_launcher_started_goes_on():
    """A run in the background of a shell that ends, one whose variables were written by hand, and one of threads in the
    shell of an interactive step."""
    port = free_port()
    by_hand = f"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT={port} "
    step = ("SLURM_JOB_ID=134 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 "
            "SLURM_TASKS_PER_NODE=1 SLURM_NODELIST=node1 ")
    shell = SCRATCH / "shell.sh"
    shell.write_text("nohup sh -c 'echo $$ > pid.0; exec \"$@\"' sh \"$@\" >/dev/null 2>&1 & sleep 3\n")
    for what, variables, ranks in (("nobody", "", ()), ("variables by hand", by_hand, ()),
                                   ("an interactive step", step, ("--ranks", "2"))):
        ends = start(["bash", "-c", f'{variables} bash {shell} "$@"; true', "bash", *RUN, *ranks])
        [pid] = pids(1)
        ends.communicate()
        time.sleep(1.5)
        still = alive(pid)
        if still:
            os.kill(pid, signal.SIGKILL)
        expect(still, "a run under", what, "ended with its shell")
    print("without a launcher: goes on", flush=True)


def what_a_shell_lets_go_goes_on():
    """Ranks whose variables were written by hand, under nohup and setsid, or without a local rank."""
    both = "RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={}"
    of_node = both + " LOCAL_RANK=$r LOCAL_WORLD_SIZE=2"
    for what, variables in (("nohup", of_node + " nohup"), ("setsid", of_node + " setsid"), ("no local rank", both)):
        shell = start(started_by_hand(variables.format(free_port())))
        found = pids(2)
        shell.kill()
        shell.wait()
        time.sleep(1.5)
        still = [pid for pid in found if alive(pid)]
        for pid in still:
            os.kill(pid, signal.SIGKILL)
        expect(still == found, "ranks that a shell let go by", what, "ended with it")
    print("let go by a shell: goes on", flush=True)


def main():
    if not sys.platform.startswith("linux"):
        return
    before = leftovers()
    mpirun_dies()
    others_die()
    those_who_say_less_die()
    what_no_launcher_started_goes_on()
    what_a_shell_lets_go_goes_on()
    expect_nothing_left(before)


try:
    main()
finally:
    clean_up()
