"""Folders of shared memory: none is left by a run that a signal ends at any moment, and those of dead runs are removed by
the next, those of living ones are not.

segments.py BINARY
"""

import fcntl
import os
import pathlib
import random
import signal
import time

from ranks import SCRATCH, clean_up, expect, finish, start_ranks

RUN = ("run", "--random", "--seq", "256", "--heads", "2", "--head-dim", "16", "--threads", "1", "--schedule", "ring",
       "--backend", "reference", "-q")
SEED = int(time.time())
SYSV = pathlib.Path("/proc/sysvipc/shm")


def folders():
    return set(pathlib.Path("/dev/shm").glob("distattn-*"))


def expect_none_but(known, seconds=20):
    """Runs of other tests have theirs for a moment."""
    deadline = time.monotonic() + seconds
    left = folders() - known
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left &= folders()
    expect(not left, "left behind (seed", SEED, "):", left)


def signals_while_ranks_set_up(before):
    for _ in range(8):
        ranks = start_ranks(3, *RUN, "-n", 100000, UCX_TLS="posix,self")
        time.sleep(random.uniform(0.01, 0.3))
        for rank in ranks:
            rank.send_signal(random.choice((signal.SIGTERM, signal.SIGUSR1)))
        finish(ranks, 30)
        expect_none_but(before)


def the_dead_and_the_living(before):
    dead, living, others = (pathlib.Path(f"/dev/shm/distattn-run-test-{name}-{os.getpid()}")
                            for name in ("dead", "living", "link"))
    for folder in (dead, living):
        folder.mkdir(mode=0o700)
        (folder / "ucx_shm_posix_1").write_bytes(bytes(100))
    others.symlink_to(SCRATCH)
    (SCRATCH / "kept").write_text("")
    held = os.open(living, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_SH)
    ends = finish(start_ranks(2, *RUN, UCX_TLS="posix,self"))
    expect(all(code == 0 for code, _, _ in ends), ends)
    expect(not dead.exists(), "a folder that nobody holds stays")
    expect(living.exists() and others.is_symlink(), "a living run's folder or a link was removed")
    expect((living / "ucx_shm_posix_1").exists() and (SCRATCH / "kept").exists(), "somebody else's was removed")
    os.close(held)
    others.unlink()
    ends = finish(start_ranks(2, *RUN, UCX_TLS="posix,self"))
    expect_none_but(before)


def segments_of(processes):
    """Those of System V, which nobody finds again when their process was killed too early to mark them."""
    rows = [line.split() for line in SYSV.read_text().splitlines()[1:]]
    return [row for row in rows if row[4] in {str(process.pid) for process in processes}]


def mapped_by(process):
    try:
        return pathlib.Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return ""


def none_without_a_name():
    ranks = start_ranks(2, *RUN, "-n", 100000)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not all("/ucx_shm_posix" in mapped_by(rank) for rank in ranks):
        time.sleep(0.01)
    time.sleep(0.5)
    named, unnamed = ["/ucx_shm_posix" in mapped_by(rank) for rank in ranks], segments_of(ranks)
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    finish(ranks, 30)
    expect(all(named), "ranks share no memory: nothing was tried")
    expect(not unnamed, "segments of System V:", unnamed)


def main():
    if not os.access("/dev/shm", os.W_OK):
        print("SKIPPED: /dev/shm cannot be written")
        return
    random.seed(SEED)
    before = folders()
    signals_while_ranks_set_up(before)
    the_dead_and_the_living(before)
    if SYSV.exists():
        none_without_a_name()
    clean_up()
    print("nothing is left behind")


if __name__ == "__main__":
    main()
