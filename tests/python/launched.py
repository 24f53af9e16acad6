"""Ranks as processes, started as torchrun starts them, but whose failures are left to themselves."""

import os
import secrets
import socket
import subprocess
import sys
import textwrap


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def environment(rank, ranks, port, token):
    ours = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port, "DISTATTN_TOKEN": token, "OMP_NUM_THREADS": 1}
    return {**os.environ, **{name: str(value) for name, value in ours.items()}}


def run(code, ranks, timeout=240):
    """[(exit status, stdout, stderr)] of `ranks` processes that run the code."""
    port, token = free_port(), secrets.token_hex(8)
    processes = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=environment(rank, ranks, port, token))
                 for rank in range(ranks)]
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]
