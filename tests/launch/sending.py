"""How long a message takes through a transport's steps, beside ucx_perftest's for the same size, in turns.

sending.py SENDING_RANK [ROUNDS]
"""

import shutil
import subprocess
import sys

from ranks import BINARY, CLEAN, clean_up, expect, finish, free_port, start_ranks

ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
WAYS = {"tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}, "shm": {"UCX_TLS": "posix,self"},
        "shm+cma": {"UCX_TLS": "posix,cma,self"}}
SIZES = {4 << 10: 4000, 64 << 10: 2000, 1 << 20: 500, 8 << 20: 100}  # bytes: times
PERFTEST = shutil.which("ucx_perftest")


def through_steps(size, times, way):
    ends = finish(start_ranks(2, size, times, program=BINARY, **way))
    expect(all(code == 0 for code, _, _ in ends), ends)
    return float(ends[0][1])


def by_perftest(size, times, way):
    """Half a round trip, the mean over all of them, with endpoints that notice failures, as ours do."""
    test = [PERFTEST, "-p", str(free_port()), "-t", "tag_lat", "-s", str(size), "-n", str(times), "-w",
            str(times // 10 + 1), "-e", "-f", "-v"]
    how = {"env": {**CLEAN, "UCX_MM_ERROR_HANDLING": "y", **way}, "stdout": subprocess.PIPE,
           "stderr": subprocess.PIPE, "text": True}
    server = subprocess.Popen(test, **how)
    while True:
        client = subprocess.run([test[0], "127.0.0.1", *test[1:]], check=False, **how)
        if client.returncode == 0 or server.poll() is not None:
            break
    server.communicate()
    expect(client.returncode == 0, client.stderr)
    iterations, _, _, mean_us, *_ = client.stdout.splitlines()[-1].split(",")
    expect(int(iterations) == times, client.stdout)
    return float(mean_us) * 1e-6


def main():
    if PERFTEST is None:
        print("SKIPPED: ucx_perftest was not found")
        return
    print(f"{'over':<8} {'bytes':>8} {'steps us':>10} {'perftest us':>12} {'ratio':>6}   best of {ROUNDS}, in turns")
    for name, way in WAYS.items():
        for size, times in SIZES.items():
            pairs = [(through_steps(size, times, way), by_perftest(size, times, way)) for _ in range(ROUNDS)]
            ours, theirs = (min(column) for column in zip(*pairs))
            print(f"{name:<8} {size:>8} {ours * 1e6:>10.1f} {theirs * 1e6:>12.1f} {ours / theirs:>6.2f}", flush=True)


try:
    main()
finally:
    clean_up()
