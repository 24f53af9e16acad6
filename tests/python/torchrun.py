"""Scripts under torchrun, on this machine."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def run(script, ranks, *arguments):
    return subprocess.run([sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
                           "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", script, *arguments],
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=900,
                          check=False)
