"""Communicators of the ranks that PyTorch has: addresses travel over its process group, data over ours."""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from .._comm import Comm

_world: Comm | None = None


def init(*, timeout_s: float = 60.0) -> Comm:
    """The communicator of all ranks: those of torch's default process group if there is one, otherwise those that
    torchrun, mpirun or srun started. A collective; later calls return the same one until it is closed."""
    global _world
    if _world is None or _world._address is None:
        has_group = dist.is_available() and dist.is_initialized()
        _world = from_process_group(timeout_s=timeout_s) if has_group else Comm.from_environment(timeout_s=timeout_s)
    return _world


def from_process_group(group: Any = None, *, timeout_s: float = 60.0) -> Comm:
    """The communicator of a process group's ranks, in its order (None: the default group). A collective of them."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    own = {"host": socket.gethostname(), "port": _free_port() if rank == 0 else 0, "token": secrets.token_hex(16)}
    all_ranks: list[Any] = [None] * size
    dist.all_gather_object(all_ranks, own, group=group)
    hosts = [each["host"] for each in all_ranks]
    first = all_ranks[0]
    variables = {
        "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": hosts[:rank].count(hosts[rank]),
        "LOCAL_WORLD_SIZE": hosts.count(hosts[rank]), "MASTER_PORT": first["port"], "DISTATTN_TOKEN": first["token"],
        "MASTER_ADDR": "127.0.0.1" if len(set(hosts)) == 1 else os.environ.get("MASTER_ADDR", first["host"])}
    with _environment({name: str(value) for name, value in variables.items()}):
        return Comm.from_environment(bootstrap="torchrun", timeout_s=timeout_s)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("", 0))
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """The variables instead of those that torchrun set, while the ranks meet."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("TORCHELASTIC_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
