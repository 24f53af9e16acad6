"""Every wait of a rank ends within about --timeout, whatever never answers, and holds nothing against ranks that were
stopped together.

waits.py BINARY HANGING
"""

import fcntl
import os
import signal
import socket
import sys
import threading
import time

from ranks import (BINARY, MPIRUN, SCRATCH, clean_up, expect, expect_nothing_left, finish, free_port, leftovers, start,
                   start_ranks)

HANGING = os.path.abspath(sys.argv[2])
TIMEOUT_S = 2.0
# Other tests run at the same time: only a hang is a failure.
LONGEST_S = TIMEOUT_S + 15
RUN = ("run", "--random", "--seq", "96", "--heads", "2", "--head-dim", "16", "--threads", "1", "--schedule", "ring",
       "--backend", "reference", "-q", "--timeout", TIMEOUT_S)


def place(rank, size, host, port, **more):
    return {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": host, "MASTER_PORT": str(port), "DISTATTN_PORT": str(port), "DISTATTN_TOKEN": "x", **more}


def hanging(call, path=""):
    # A sanitizer's own library wants to be the first.
    return {"LD_PRELOAD": HANGING, "HANGING_CALL": call, "ASAN_OPTIONS": "verify_asan_link_order=0",
            **({"HANGING_PATH": str(path)} if path else {})}


def ends_in_time(what, processes, words, codes=(4,)):
    begin = time.monotonic()
    ends = finish(processes, LONGEST_S)
    took = time.monotonic() - begin
    for code, _, errors in ends:
        expect(code is not None, what, "hangs:", ends)
        expect(code in codes and errors.count("\n") == 1, what, "ends with", code, errors)
        expect(words in errors, what, "does not say", words, "but", errors)
    print(f"{what}: {took:.1f} s", flush=True)
    return ends


class Silent:
    """A port of this machine whose owner does what `hear` does with connections, and nothing more."""

    def __init__(self, hear=None):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.socket.getsockname()[1]
        self.heard = []
        if hear:
            threading.Thread(target=self.serve, args=(hear,), daemon=True).start()

    def serve(self, hear):
        while True:
            try:
                peer, _ = self.socket.accept()
                self.heard.append(peer)
                hear(peer)
            except OSError:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def half_a_challenge(peer):
    peer.recv(64)
    peer.sendall(b"x" * 17)


def peers_that_never_answer():
    for what, hear in (("a listener that never accepts", None), ("one that accepts and is silent", lambda peer: None),
                       ("one that sends half of an answer", half_a_challenge)):
        with Silent(hear) as silent:
            ends_in_time(what, [start([BINARY, *RUN], **place(1, 2, "127.0.0.1", silent.port))],
                         "rank 0 was not found")
    ends_in_time("a rank 0 that never comes", [start([BINARY, *RUN], **place(1, 2, "127.0.0.1", free_port()))],
                 "rank 0 was not found")
    port = free_port()
    rank = start([BINARY, *RUN], **place(0, 2, "127.0.0.1", port))
    with socket.socket() as stranger:
        for _ in range(100):
            if stranger.connect_ex(("127.0.0.1", port)) == 0:
                stranger.sendall(b"distattn")  # the first eight bytes of a greeting
                break
            time.sleep(0.05)
        ends_in_time("a visitor that sends half of a greeting", [rank], "rank 1 did not come")


def name_servers_that_never_answer():
    rank = place(1, 2, "master-0.cluster", 23611)
    ends_in_time("a look-up that never returns", [start([BINARY, *RUN], **rank, **hanging("getaddrinfo"))],
                 "no name server")
    if os.geteuid() != 0:
        return print("a silent name server: needs root", flush=True)
    resolver = SCRATCH / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.9\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        try:
            sink.bind(("127.0.0.9", 53))
        except OSError as error:
            return print(f"a silent name server: {error}", flush=True)
        inside = ("unshare", "-m", "sh", "-c", f'mount --bind {resolver} /etc/resolv.conf && exec "$@"', "sh")
        ends_in_time("a silent name server", [start([BINARY, *RUN], inside, **rank)], "no name server")
    return None


def libraries_that_never_return():
    for only in (range(1), range(2)):
        stuck = {rank: hanging("ucp_worker_create") for rank in only}
        for code, _, errors in finish(start_ranks(2, *RUN, only=stuck), LONGEST_S):
            expect(code in (3, 4) and "UCX is not set up within the timeout" in errors, code, errors)
    print("UCX that is never set up: ends", flush=True)
    if os.geteuid() == 0:
        meeting = SCRATCH / "few-ports"
        script = ('ip link set lo up && sysctl -qw net.ipv4.ip_local_port_range="60000 60003" || exit 77; '
                  'for r in 0 1; do DISTATTN_RANK=$r "$@" & p="$p $!"; done; for i in $p; do wait $i; c="$c $?"; done; '
                  'echo $c')
        [(code, output, errors)] = finish([start(["unshare", "-n", "sh", "-c", script, "sh", BINARY, *RUN, "--ranks",
                                                  2, "--bootstrap", f"file:{meeting}"])], LONGEST_S)
        if code == 77 or "unshare" in errors:
            print("few ephemeral ports: cannot be made here", flush=True)
        else:
            expect(code == 0 and output and set(output.split()[-2:]) <= {"0", "3", "4"}, code, output, errors)
            print("few ephemeral ports: ends", flush=True)
    if not MPIRUN:
        return
    # Without them it asks PMIx who it is.
    asks = ["env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "OMPI_COMM_WORLD_RANK"]
    options = (MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", 2)
    set_here = [f"{name}={value}" for name, value in hanging("PMIx_Init").items()]
    [(code, _, errors)] = finish([start([*options, *asks, *set_here, BINARY, *RUN])], LONGEST_S)
    expect(code == 4 and "PMIx_Init has not returned within the timeout" in errors, code, errors)
    [(code, _, errors)] = finish([start([*options[:-1], 1, *asks, BINARY, *RUN, ":", "-n", 1, "sleep", "30"])], LONGEST_S)
    expect(code == 4 and "not all of 2 ranks have come" in errors, code, errors)
    print("PMIx that never answers: ends", flush=True)


def files_that_are_not_to_be_had():
    folder = SCRATCH / "hung"
    folder.mkdir()
    ranks = [start([BINARY, *RUN, "--ranks", 2, "--bootstrap", f"file:{folder}/meeting"], **hanging("open", folder))
             for _ in range(2)]
    ends_in_time("a meeting on a file system that hangs", ranks, "its file system does not answer")
    pipe = SCRATCH / "pipe"
    os.mkfifo(pipe)
    ends_in_time("a meeting at a pipe", [start([BINARY, *RUN, "--ranks", 2, "--bootstrap", f"file:{pipe}"])],
                 "not a regular file", codes=(2,))
    held = SCRATCH / "held"
    with open(held, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ends_in_time("a meeting at a file that somebody holds",
                     [start([BINARY, *RUN, "--ranks", 2, "--bootstrap", f"file:{held}"])], "stays locked")
    shape = ("--random", "--seq", "96", "--heads", "2", "--head-dim", "16")
    run = (BINARY, "run", *shape, "-q", "--timeout", TIMEOUT_S)
    files = (("--q", [BINARY, "run", "--q", pipe, "--k", pipe, "--v", pipe], "not a regular file", 2),
             ("--tensors", [BINARY, "run", "--tensors", pipe], "not a regular file", 2),
             ("--mask", [*run, "--mask", f"{pipe}.json"], "pipe.json", 2),
             ("--machine", [*run, "--schedule", "auto", "--machine", pipe], "nothing came through the pipe", 4),
             ("--config", [*run, "--config", pipe], "nothing came through the pipe", 4),
             ("--svg", [*run, "--svg", pipe], "nobody read from the pipe", 4))
    os.mkfifo(f"{pipe}.json")
    for what, command, words, code in files:
        ends_in_time(f"a pipe without another end as {what}", [start(command)], words, codes=(code,))
    # A process at the other end is read, however late it comes.
    late = start([*run, "--config", pipe, "--machine", f"{pipe}.json"])
    time.sleep(0.5)
    pipe.write_text("ranks = 2\nschedule = 'auto'\n")
    time.sleep(0.3)
    with open(f"{pipe}.json", "w", encoding="utf-8") as writer:
        writer.write('{"nodes": 1')
    [(code, _, errors)] = finish([late])
    expect(code == 2 and "pipe.json" in errors, "half a machine:", code, errors)


def suspended():
    """All ranks are stopped for longer than the timeout and go on together."""
    run = (*RUN[:-1], 1, "-n", "100000")
    for what, signals in (("while they compute", (1.5,)), ("twice", (0.8, 0.6))):
        ranks = start_ranks(2, *run)
        for compute_s in signals:
            time.sleep(compute_s)
            for process in ranks:
                process.send_signal(signal.SIGSTOP)
            time.sleep(2)
            for process in ranks:
                process.send_signal(signal.SIGCONT)
        time.sleep(1.3)
        expect(all(process.poll() is None for process in ranks), "a job that was suspended ended:",
               [process.communicate() for process in ranks if process.poll() is not None])
        for process in ranks:
            process.send_signal(signal.SIGTERM)
        finish(ranks)
        print(f"suspended {what}: goes on", flush=True)
    meeting = SCRATCH / "suspended"
    late = [start([BINARY, *RUN, "--ranks", 2, "--bootstrap", f"file:{meeting}"])]
    time.sleep(0.5)
    late[0].send_signal(signal.SIGSTOP)
    time.sleep(TIMEOUT_S + 1)
    late[0].send_signal(signal.SIGCONT)
    late.append(start([BINARY, *RUN, "--ranks", 2, "--bootstrap", f"file:{meeting}"]))
    expect(all(code == 0 for code, _, _ in finish(late)), "suspended while they met")
    print("suspended while they meet: goes on", flush=True)


def main():
    before = leftovers()
    peers_that_never_answer()
    name_servers_that_never_answer()
    libraries_that_never_return()
    files_that_are_not_to_be_had()
    suspended()
    expect_nothing_left(before)


try:
    main()
finally:
    clean_up()
