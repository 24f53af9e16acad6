"""Ranks that are forked from a process which has imported what they need: imports take longer than most tests. They
find themselves in the environment that torchrun makes."""

import atexit
import os
import pathlib
import runpy
import secrets
import signal
import sys
import tempfile
import time
import traceback

import launched

os.environ["OMP_NUM_THREADS"] = "1"  # read when PyTorch is imported


def read_compiler():
    """Once for all ranks. Without gradients: PyTorch has none in forks of a process that had some."""
    import torch

    torch.compile(torch.neg, backend="aot_eager")(torch.ones(1))


def run(script, ranks, *arguments, timeout=900):
    """(whether all ranks ended well, what they wrote). When one fails, the others are ended."""
    port, token = launched.free_port(), secrets.token_hex(8)
    sys.stdout.flush()
    sys.stderr.flush()
    running = set()
    with tempfile.TemporaryFile("w+") as written:
        try:
            for rank in range(ranks):
                child = os.fork()
                if child == 0:
                    _become(script, arguments, launched.environment(rank, ranks, port, token), written.fileno())
                running.add(child)
            well = _wait(running, time.monotonic() + timeout)
        finally:
            for child in running:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        written.seek(0)
        return well, written.read()


def _become(script, arguments, environment, output):
    """Runs the script as a program of its own, and ends with it."""
    status = 1
    try:
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ.update(environment)
        sys.argv = [str(script), *map(str, arguments)]
        sys.path.insert(0, str(pathlib.Path(script).parent))
        runpy.run_path(str(script), run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code or 0 if isinstance(ended.code, int | None) else 1
    except BaseException as error:
        sys.last_value = error  # as the interpreter has it at the exit
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(running, deadline):
    """Takes those out that ended, until all have, one fails or time is over."""
    while running:
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                running.remove(child)
            if status or time.monotonic() > deadline:
                return False
        time.sleep(0.02)
    return True
