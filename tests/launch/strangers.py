"""Whoever else connects to the port where ranks meet does no harm: wrong tokens, random bytes, silence, crowds."""

import os
import random
import socket
import struct
import time

from ranks import BINARY, clean_up, expect, expect_nothing_left, finish, free_port, leftovers, start

RANKS = 3
CROWD = 10_000
RUN = ("run", "--random", "--seq", "60", "--heads", "2", "--head-dim", "8", "--schedule", "ring", "--check",
       "--backend", "reference", "--timeout")


def connect(port):
    stranger = socket.socket()
    stranger.settimeout(2)
    # Gone at once when closed: those that linger would take the ports from other tests for a minute.
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stranger.connect(("127.0.0.1", port))
    return stranger


def send(port, data, stay):
    try:
        stranger = connect(port)
        stranger.sendall(data)
        stay.append(stranger)
    except OSError:
        pass  # it was dropped, or nobody listens any more


def crowd(port, stay):
    """Most leave at once; the last are still there when the ranks come."""
    for visitor in range(CROWD):
        try:
            stranger = connect(port)
        except OSError as error:
            expect(False, "stranger", visitor, "is not even accepted:", error)
        if visitor < CROWD - 200:
            stranger.close()
        else:
            stay.append(stranger)


STRANGERS = {
    "silence": lambda port, stay: [send(port, b"", stay) for _ in range(50)],
    "random bytes": lambda port, stay: [send(port, random.randbytes(random.randint(1, 300)), stay) for _ in range(50)],
    "half a greeting": lambda port, stay: send(port, b"distattn", stay),
    "a wrong token": lambda port, stay: [send(port, b"distattn" + bytes([1, 0, 0, 0, 0, 0, 0, 0]) + random.randbytes(
        16 + 40), stay) for _ in range(50)],
    "a crowd": crowd,
}


def start_rank(rank, port):
    return start([BINARY, *RUN, "40"], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                 LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="localhost", MASTER_PORT=str(port))


def visit(name, strangers):
    port, stay = free_port(), []
    first = start_rank(0, port)
    for _ in range(400):
        try:
            connect(port).close()
            break
        except OSError:
            time.sleep(0.01)
    strangers(port, stay)
    ends = finish([first] + [start_rank(rank, port) for rank in range(1, RANKS)])
    for stranger in stay:
        stranger.close()
    expect(all(code == 0 for code, _, _ in ends) and ": ok" in ends[0][1], name, ends)
    print(f"{name}: the run succeeds", flush=True)


def another_token():
    port = free_port()
    tokens = ("one", "another", "one")
    ends = finish([start([BINARY, *RUN, "2"], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                         LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="localhost", MASTER_PORT=str(port),
                         DISTATTN_TOKEN=tokens[rank]) for rank in range(RANKS)])
    expect(all(code == 4 for code, _, _ in ends), ends)
    expect("rank 1 did not come" in ends[0][2] and "rank 0 was not found" in ends[1][2], ends)
    print("a rank with another token: named, nobody hangs", flush=True)


def main():
    random.seed(int(os.environ.get("DISTATTN_SEED", "1")))
    before = leftovers()
    for name, strangers in STRANGERS.items():
        visit(name, strangers)
    another_token()
    expect_nothing_left(before)


try:
    main()
finally:
    clean_up()
