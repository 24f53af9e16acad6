"""Communicators of the ranks that PyTorch has: addresses travel over its process group, data over ours."""

import contextlib
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
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
    own: dict[str, Any] = {"host": socket.gethostname(), "token": secrets.token_hex(16)}
    if rank == 0:
        # The launcher's address is that of the first of all ranks, which need not be on this machine.
        own |= {"port": _free_port(), "address": None if dist.get_rank() == 0 else _own_address()}
    all_ranks: list[Any] = [None] * size
    dist.all_gather_object(all_ranks, own, group=group)
    hosts = [each["host"] for each in all_ranks]
    first = all_ranks[0]
    variables: dict[str, Any] = {
        "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": hosts[:rank].count(hosts[rank]),
        "LOCAL_WORLD_SIZE": hosts.count(hosts[rank]), "MASTER_PORT": first["port"], "DISTATTN_TOKEN": first["token"],
        "MASTER_ADDR": first["address"] or os.environ.get("MASTER_ADDR", first["host"])}
    if len(set(hosts)) == 1:
        variables["MASTER_ADDR"] = "127.0.0.1"
    not_ours = [name for name in os.environ if name.startswith("TORCHELASTIC_")]
    if first["address"] is not None:
        not_ours += ["DISTATTN_ADDRESS", "DISTATTN_PORT"]  # of the first of all ranks, too
    with _environment({name: str(value) for name, value in variables.items()} | dict.fromkeys(not_ours)):
        return Comm.from_environment(bootstrap="torchrun", timeout_s=timeout_s)


def _own_address() -> str:
    """One at which other machines reach this one: that from which it reaches the first of all ranks, or its name."""
    master = os.environ.get("MASTER_ADDR")
    if master is None:
        return socket.gethostname()
    try:
        family, kind, _, _, address = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as towards:
            towards.connect(address)  # sends nothing
            own = str(towards.getsockname()[0])
    except OSError:
        return socket.gethostname()
    return master if ipaddress.ip_address(own.partition("%")[0]).is_loopback else own  # it is this machine


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("", 0))
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """The variables instead of those that a launcher set, while the ranks meet; None: not set. Others are left alone:
    threads of other libraries may be reading them."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
