"""Starts the command as ranks in processes of their own, by hand: no launcher that would end the survivors of a fault."""

import mmap
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BINARY = os.path.abspath(sys.argv[1])
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="distattn-ranks-"))
MPIRUN = shutil.which("mpirun")

LAUNCHERS = ("PMIX_", "PMI_", "OMPI_", "SLURM_", "TORCHELASTIC_", "DISTATTN_", "FLUX_", "JSM_", "MV2_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS) and name not in NAMES}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, prefix=(), before_exec=None, **variables):
    return subprocess.Popen([*prefix, *map(str, command)], env={**CLEAN, **variables}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, cwd=SCRATCH, preexec_fn=before_exec,
                            restore_signals=before_exec is None)


def start_ranks(ranks, *arguments, program=BINARY, prefix=lambda rank: (), own=lambda rank: (), only=None,
                before_exec=None, **variables):
    """One process a rank, which meet at a file; rank r is the r-th. `own` gives a rank arguments, `only` variables,
    `before_exec` something to do."""
    meeting = SCRATCH / f"meeting-{time.monotonic_ns()}"
    processes = []
    for rank in range(ranks):
        size = () if "--program" in arguments else ("--ranks", ranks)
        command = [program, *arguments, *own(rank), *size, "--bootstrap", f"file:{meeting}"]
        processes.append(start(command, prefix(rank), (before_exec or {}).get(rank), DISTATTN_RANK=str(rank),
                               **variables, **(only or {}).get(rank, {})))
    return processes


def finish(processes, seconds=180):
    """(exit code, stdout, stderr) of each; whoever hangs is killed and has the exit code None. Some need most of that
    under a sanitizer while other tests run."""
    deadline = time.monotonic() + seconds
    ends = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            ends.append((process.returncode, out, err))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            ends.append((None, out, err))
    return ends


def under_torchrun(ranks, *arguments, a_node=None, **variables):
    """With the variables that torchrun sets, as if its agent owned the port; all ranks on one node, or `a_node` on each."""
    a_node = a_node or ranks
    with socket.socket() as agent:
        agent.bind(("127.0.0.1", 0))
        agent.listen()
        port = agent.getsockname()[1]
        places = [{"RANK": str(r), "LOCAL_RANK": str(r % a_node), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(a_node),
                   "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
                   "TORCHELASTIC_RUN_ID": "none" if a_node == ranks else f"nodes-{port}"} for r in range(ranks)]
        return finish([start([BINARY, *arguments], **place, **variables) for place in places])


def under_srun(ranks, *arguments):
    """With the variables that srun sets: one node, one step."""
    places = [{"SLURM_PROCID": str(r), "SLURM_LOCALID": str(r), "SLURM_NODEID": "0", "SLURM_NTASKS": str(ranks),
               "SLURM_TASKS_PER_NODE": str(ranks), "SLURM_NODELIST": "localhost", "SLURM_STEP_ID": "0",
               "SLURM_JOB_ID": str(os.getpid())} for r in range(ranks)]
    return finish([start([BINARY, *arguments], **place) for place in places])


def under_mpirun(ranks, *arguments, beside=()):
    """`beside`: a command that mpirun starts as one more rank."""
    options = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", ranks)
    more = (":", "-n", "1", *beside) if beside else ()
    return finish([start([MPIRUN, *options, BINARY, *arguments, *more])])


def leftovers():
    """What a run must not leave: shared memory segments and this user's tokens.

    But for a page of System V's, on which UCX tries its hooks when it starts: a rank that is killed meanwhile leaves it.
    """
    segments = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")} if os.path.isdir("/dev/shm") else set()
    sysv = pathlib.Path("/proc/sysvipc/shm")
    if sysv.exists():
        rows = [line.split() for line in sysv.read_text().splitlines()[1:]]
        segments |= {"sysv " + row[1] for row in rows
                     if int(row[3]) != mmap.PAGESIZE and not os.path.exists(f"/proc/{row[4]}")}  # its creator is gone
    tokens = pathlib.Path(tempfile.gettempdir()).glob(f"distattn-{os.geteuid()}-*.token")
    return segments | {str(token) for token in tokens}


def expect_nothing_left(before, seconds=20):
    """Other tests that run at the same time leave nothing either, sooner or later."""
    deadline = time.monotonic() + seconds
    left = leftovers() - before
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left &= leftovers()
    expect(not left, "left behind:", sorted(left))


def expect(condition, *words):
    if condition:
        return
    print("FAILED:", *words, flush=True)
    sys.exit(1)


def clean_up():
    shutil.rmtree(SCRATCH, ignore_errors=True)
