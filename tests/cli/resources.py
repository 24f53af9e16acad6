#!/usr/bin/env python3
"""How many threads a rank takes, and how much memory: affinity, control groups and limits.

usage: resources.py DISTATTN PROCESSORS THREADS_TAKEN (tests/cli/processors.c and threads_taken.cpp, built)
"""
import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

NUMBERS = itertools.count()
DISTATTN, PROCESSORS, THREADS_TAKEN = map(os.path.abspath, sys.argv[1:4])
RUN = "run --random --seq 256 --heads 2 --head-dim 16 --backend reference --schedule ring --json -q"
LARGE = "run --random --seq 200K --heads 4 --head-dim 64 --mask full --window 8,0 --threads 1 -q --out out"


def cores(before=None, **variables):
    done = subprocess.run([DISTATTN, "info", "--json"], capture_output=True, text=True, preexec_fn=before, timeout=60,
                          env={**os.environ, **variables}, check=True)
    return json.loads(done.stdout)["cpu"]["cores"]


def cores_of_all(before=None, **variables):
    """What the command, the library and the C API take to be one rank's cores: one number."""
    env = {**os.environ, **variables}
    run = subprocess.run([DISTATTN, *RUN.split()], capture_output=True, text=True, preexec_fn=before, timeout=60, env=env,
                         check=True)
    taken = subprocess.run([THREADS_TAKEN], capture_output=True, text=True, preexec_fn=before, timeout=60, env=env,
                           check=True)
    all_of_them = {cores(before, **variables), json.loads(run.stdout)["threads"], *map(int, taken.stdout.split())}
    assert len(all_of_them) == 1, all_of_them
    return all_of_them.pop()


def ends_of_ranks(command, places, groups=None):
    """Exit code, output and errors of ranks that meet at a file, each with its variables, and in its control group."""
    with tempfile.TemporaryDirectory() as folder:
        command = f"{command} --ranks {len(places)} --bootstrap file:{folder}/meeting"
        ranks = [subprocess.Popen([DISTATTN, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "DISTATTN_RANK": str(rank), **place}, cwd=folder,
                                  preexec_fn=groups[rank].enter if groups else None)
                 for rank, place in enumerate(places)]
        outputs = [rank.communicate(timeout=60) for rank in ranks]
        return [(rank.returncode, *output) for rank, output in zip(ranks, outputs)]


def threads_of_ranks(places, groups=None):
    """Of rank 0."""
    return json.loads(ends_of_ranks(RUN, places, groups)[0][1])["threads"]


def on(first, count, **more):
    return {"LD_PRELOAD": PROCESSORS, "PROCESSORS": f"{first} {count}", **more}


def affinity():
    one = min(os.sched_getaffinity(0))
    assert cores_of_all(lambda: os.sched_setaffinity(0, {one})) == 1
    assert cores_of_all(**on(0, 16)) == 16
    assert cores(**on(0, 1500, KERNEL="2048")) == 1500
    assert cores(**on(1100, 3, KERNEL="8192")) == 3


def ranks_of_one_machine():
    mine = len(os.sched_getaffinity(0))
    assert threads_of_ranks([{}] * 2) == max(1, mine // 2), "not bound"
    assert threads_of_ranks([on(16 * rank, 16) for rank in range(4)]) == 16, "bound apart"
    assert threads_of_ranks([on(0, 16)] * 4) == 16, "numbers that this machine does not have"
    assert threads_of_ranks([on(1100 + 3 * rank, 3, KERNEL="2048") for rank in range(2)]) == 3, "of very many"
    inside = subprocess.run([DISTATTN, *RUN.split(), "--ranks", "4"], capture_output=True, text=True, check=True,
                            env={**os.environ, **on(0, 16)})
    assert json.loads(inside.stdout)["threads"] == 4, "threads of one process"


def crowd(before):
    """What bench says of ranks that have fewer cores than threads together, each a process."""
    with tempfile.TemporaryDirectory() as folder:
        command = f"bench --seq 64 --heads 1 --head-dim 8 --backend reference --schedule ring -n 1 -w 0 --ranks 4 " \
                  f"--threads 1 --bootstrap file:{folder}/meeting"
        ranks = [subprocess.Popen([DISTATTN, *command.split()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, preexec_fn=before, env={**os.environ, "DISTATTN_RANK": str(rank)})
                 for rank in range(4)]
        said = [rank.communicate(timeout=60)[1] for rank in ranks][0]
    return next((line.split(": ", 1)[-1] for line in said.splitlines() if " share " in line), said)


class Group:
    """A control group of version 1 or 2, a level below the process's own, or below another."""

    def __init__(self, controller, settings, above=None):
        self.folder = above and above.folder / f"below-{next(NUMBERS)}"
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            roots = {controller: f"/sys/fs/cgroup/{controller}"} if controller in controllers.split(",") else {}
            unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
            if not controllers and unified.exists() and controller in unified.read_text().split():
                roots = {controller: "/sys/fs/cgroup"}
            if controller in roots and not above:
                self.folder = pathlib.Path(f"{roots[controller]}{path}/distattn-test-{os.getpid()}-{next(NUMBERS)}")
        if self.folder is None:
            raise OSError(f"no control group for {controller}")
        self.folder.mkdir()
        try:
            for names, value in settings:
                (self.folder / next(name for name in names if (self.folder / name).exists())).write_text(str(value))
        except (OSError, StopIteration):
            self.remove()
            raise

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.folder.rmdir()


def control_groups():
    try:
        group = Group("cpu", [(("cpu.cfs_quota_us",), 100000)])
    except (OSError, StopIteration) as reason:
        print(f"a control group's quota: skipped ({reason})")
    else:
        assert cores_of_all(group.enter) == 1, "a quota of one processor"
        assert crowd(group.enter) == "4 ranks x 1 threads share 1 cores", "processes that share a quota"
        group.remove()
    try:
        group = Group("memory", [(("memory.limit_in_bytes", "memory.max"), 120 << 20)])
    except (OSError, StopIteration) as reason:
        print(f"a control group's memory: skipped ({reason})")
    else:
        refused(group.enter, "the limit of its control group leaves")
        group.remove()


class Nested:
    """Groups of one controller, one below the other or side by side; removed in the end."""

    def __init__(self, controller):
        self.controller, self.groups = controller, []

    def add(self, settings, above=None):
        self.groups.append(Group(self.controller, settings, above))
        return self.groups[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for group in reversed(self.groups):
            group.remove()


def a_quota_of_each_rank_below_one_of_all():
    def quota(processors):
        return [(("cpu.cfs_quota_us",), int(100000 * processors))]
    try:
        for each, threads in ((8, 3), (2.5, 2)):
            with Nested("cpu") as groups:
                above = groups.add(quota(12))
                own = [groups.add(quota(each), above) for _ in range(4)]
                assert threads_of_ranks([on(0, 64)] * 4, own) == threads, f"quotas of {each} below one of 12"
    except (OSError, StopIteration) as reason:
        print(f"quotas below a quota: skipped ({reason})")


def a_memory_limit_of_each_rank():
    """Of which the need of that rank alone is held; the limit of the group above holds that of all below it."""
    def limit(mebibytes):
        return [(("memory.limit_in_bytes", "memory.max"), mebibytes << 20)]
    shape = "run --random --seq 60K --heads 4 --head-dim 64 --mask full --window 8,0 --threads 1 -q --schedule"
    try:
        with Nested("memory") as groups:  # auto divides by those who share a limit too: half of it would fit none
            own = [groups.add(limit(400)) for _ in range(2)]
            for done in ends_of_ranks(f"{shape} auto".replace("60K", "150K"), [{}] * 2, own):
                assert done[0] == 3 and "no schedule fits" not in done[2], done
        for all_of_them, each, code, schedule in ((1000, 400, 0, "ring"), (1000, 500, 0, "auto"), (400, 380, 3, "ring"),
                                                  (1000, 200, 3, "ring")):
            with Nested("memory") as groups:
                above = groups.add(limit(all_of_them))
                own = [groups.add(limit(each), above) for _ in range(2)]
                for done in ends_of_ranks(f"{shape} {schedule}", [{}] * 2, own):
                    assert done[0] == code, (all_of_them, each, schedule, done)
                    assert ("the limit of its control group leaves" in done[2]) == (code == 3), done
    except (OSError, StopIteration) as reason:
        print(f"limits below a limit: skipped ({reason})")


def refused(before, words):
    """A schedule that is named, and one that is chosen by its memory."""
    with tempfile.TemporaryDirectory() as folder:
        for schedule, said in (("ring", words), ("auto", "no schedule fits")):
            done = subprocess.run([DISTATTN, *LARGE.split(), "--schedule", schedule], cwd=folder, capture_output=True,
                                  text=True, timeout=60, preexec_fn=before)
            assert done.returncode == 3 and said in done.stderr and done.stderr.count("\n") == 1, done
            assert os.listdir(folder) == [], os.listdir(folder)


def limits_of_a_process():
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        refused(lambda kind=kind: resource.setrlimit(kind, (700 << 20, 700 << 20)), "ulimit -v or -d leaves it")


def limited(command, kind, bytes_):
    return subprocess.run([DISTATTN, *command.split()], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(kind, (bytes_, bytes_)))


def small_stacks():
    """Libraries and their threads need more than some sites let a process have."""
    for kilobytes in (64, 256):
        for command in ("info", "--version", RUN + " --ranks 2"):
            done = limited(command, resource.RLIMIT_STACK, kilobytes << 10)
            assert done.returncode == 0, (kilobytes, command, done)


def no_room_for_threads():
    done = limited("info", resource.RLIMIT_DATA, 20000 << 10)
    assert done.returncode in (0, 3) and done.stderr.count("\n") <= 1, done
    assert done.returncode == 0 or ("ulimit -v or -d" in done.stderr and "fewer ranks" not in done.stderr), done


for check in (small_stacks, no_room_for_threads, affinity, ranks_of_one_machine, control_groups, a_quota_of_each_rank_below_one_of_all,
              a_memory_limit_of_each_rank, limits_of_a_process):
    check()
    print(check.__name__, "fine")
