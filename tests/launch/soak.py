"""Many small runs in a row over UCX: none fails, nothing is left. soak.py BINARY [RUNS]"""

import sys
import time

from ranks import clean_up, expect, expect_nothing_left, finish, leftovers, start_ranks

RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
RANKS = 3
WAYS = ({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}, {"UCX_TLS": "posix,self"}, {})
RUN = ("run", "--random", "--seq", "60", "--heads", "2", "--head-dim", "8", "--backward", "--check", "--backend",
       "reference", "--schedule")
SCHEDULES = ("ring", "zigzag-ring", "burst", "balanced", "allgather")


def main():
    before, begin, longest_s = leftovers(), time.monotonic(), 0.0
    for run in range(RUNS):
        started = time.monotonic()
        ends = finish(start_ranks(RANKS, *RUN, SCHEDULES[run % len(SCHEDULES)], **WAYS[run % len(WAYS)]))
        longest_s = max(longest_s, time.monotonic() - started)
        expect(all(code == 0 for code, _, _ in ends), "run", run, ends)
    expect_nothing_left(before)
    print(f"{RUNS} runs of {RANKS} ranks: none failed, nothing left; {(time.monotonic() - begin) / RUNS:.3f} s each, "
          f"longest {longest_s:.2f} s")


try:
    main()
finally:
    clean_up()
