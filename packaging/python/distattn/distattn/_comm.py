"""Communicators, and what all handles have in common: they are given back once, also by a child process or an exit."""

import atexit
import ctypes
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from . import _capi
from ._capi import check, lib, made
from ._errors import UsageError
from ._problem import _bytes, int32, integer


class Handle:
    """Something of the library's that is given back with close()."""

    _live: "weakref.WeakSet[Handle]" = weakref.WeakSet()
    _free: Callable[[int], None]
    _late = 0  # of two kinds, that which others stand on is given back later
    _numbers = itertools.count()

    def __init__(self, address: int) -> None:
        self._address: int | None = address
        self._number = next(Handle._numbers)
        self._gone = "was closed"
        Handle._live.add(self)

    @property
    def address(self) -> int:
        if self._address is None:
            raise UsageError(f"the {type(self).__name__} {self._gone} (it cannot be used any more): make a new one")
        return self._address

    def close(self) -> None:
        """Gives it back. A second call does nothing."""
        address, self._address = self._address, None
        if address is not None:
            type(self)._free(address)

    def __copy__(self) -> Self:
        return self  # models hold one, and are copied

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise UsageError(f"a {type(self).__name__} cannot be pickled (it belongs to this process): make one in each "
                         f"process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_address", None) is not None and not sys.is_finalizing():
            self.close()


def _in_order(handles: "Iterable[Handle]") -> "list[Handle]":
    """In which they are given back: the same on all ranks, which make them in one order, because some wait for others.
    """
    return sorted(handles, key=lambda handle: (handle._late, handle._number))


def _after_fork() -> None:
    """The threads of a handle are the parent's: a child can neither use nor free it."""
    for handle in list(Handle._live):
        handle._address, handle._gone = None, "was made before this process was forked"
    Handle._live.clear()


def _at_exit() -> None:
    """Gives back what lives, attentions first. After a failure, the other ranks are told instead of waited for."""
    live = _in_order(Handle._live)
    if hasattr(sys, "last_value"):
        for handle in live:
            if isinstance(handle, Comm) and handle._address is not None:
                said = f": {sys.last_value}" if str(sys.last_value) else ""
                handle.abort(f"rank {handle.rank} ended with {type(sys.last_value).__name__}{said}")
    for handle in live:
        handle._gone = "was given back as the interpreter ended"
        handle.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class Comm(Handle):
    """One rank's end of what connects the ranks of a run."""

    _free = staticmethod(lib.comm_free)
    _late = 2

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.rank = int(lib.comm_rank(address))
        self.size = int(lib.comm_size(address))
        self.users: "weakref.WeakSet[Handle]" = weakref.WeakSet()

    @classmethod
    def from_environment(cls, *, bootstrap: str | None = None, transport: str | None = None, ranks: int = 0,
                         timeout_s: float = 60.0) -> "Comm":
        """Of all processes that a launcher (torchrun, mpirun, srun) started, or that meet at `bootstrap`
        "file:PATH". A collective. A process without a launcher is alone."""
        launch = _capi.Launch(bootstrap=_bytes(bootstrap), transport=_bytes(transport),
                              ranks=int32(integer(ranks, "ranks")), timeout_s=float(timeout_s))
        comm = cls(made(lib.comm_from_launcher, ctypes.byref(launch)))
        _kept.append(comm)
        return comm

    @classmethod
    def from_process_group(cls, group: Any = None, *, timeout_s: float = 60.0) -> "Comm":
        """Of the ranks of a process group of PyTorch, in its order (None: the default group). A collective of them."""
        from .torch import from_process_group

        return from_process_group(group, timeout_s=timeout_s)

    @classmethod
    def alone(cls) -> "Comm":
        """Of this process alone, whatever a launcher says."""
        return cls(made(lib.comm_from_callbacks, ctypes.byref(_NOBODY)))

    @classmethod
    def _borrowed(cls, address: int) -> "Comm":
        comm = cls(address)
        Handle._live.discard(comm)
        return comm

    def subgroup(self, members: Iterable[int]) -> "Comm":
        """Some of the ranks as a communicator of their own: its rank i is members[i]. All members call it."""
        listed = [integer(member, "a member") for member in members]
        group = Group(made(lib.comm_subgroup, self.address, (ctypes.c_int32 * len(listed))(*listed), len(listed)))
        group.whole = self
        self.users.add(group)
        return group

    def all_gather(self, mine: bytes | bytearray | memoryview | np.ndarray, sizes: Iterable[int]) -> bytearray:
        """A collective: the bytes of all ranks, one rank's after the other's; rank r gives sizes[r] of them."""
        listed = [integer(size, "a size") for size in sizes]
        given = np.ascontiguousarray(np.frombuffer(mine, np.uint8) if not isinstance(mine, np.ndarray) else mine)
        if len(listed) != self.size or given.nbytes != listed[self.rank]:
            raise UsageError(f"rank {self.rank} of {self.size} gives {given.nbytes} bytes (sizes are {listed}): list "
                             f"what each rank gives")
        everyone = bytearray(sum(listed))
        into = (ctypes.c_char * len(everyone)).from_buffer(everyone) if everyone else None
        check(lib.comm_all_gather(self.address, given.ctypes.data, (ctypes.c_size_t * self.size)(*listed), into))
        return everyone

    def abort(self, reason: str) -> None:
        """Ends the run on all ranks: calls under way and later ones raise EndedError. Any thread."""
        check(lib.comm_abort(self.address, reason.replace("\n", " ").encode()))

    def close(self) -> None:
        """Gives it back, with all that was made on it. A collective unless a call has failed."""
        for user in _in_order(self.users):
            user.close()
        if self in _kept:
            _kept.remove(self)
        super().close()

    def __repr__(self) -> str:
        return f"Comm(rank={self.rank}, size={self.size})"


class Group(Comm):
    _late = 1
    whole: Comm


_kept: list[Comm] = []  # to give back a launcher's communicator is a collective: it does not happen by itself
_nothing = _capi.Exchange(lambda *_: 0)
_NOBODY = _capi.Callbacks(rank=0, size=1, exchange=_nothing, reaches_cuda=1)


def run_ranks(ranks: int, body: Callable[[Comm], Any]) -> list[Any]:
    """Calls body(comm) once for each rank, on threads of this process, and returns what the ranks returned.

    A rank that raises ends the others; its exception is raised here. `comm` is valid during the call.
    """
    results: dict[int, Any] = {}
    failures: list[BaseException] = []
    lock = threading.Lock()

    def of_rank(_: int | None, address: int) -> int:
        comm = Comm._borrowed(address)
        try:
            result = body(comm)
            with lock:
                results[comm.rank] = result
            return _capi.OK
        except BaseException as error:  # it must not pass through the library
            with lock:
                failures.append(error)
            return getattr(error, "status", 0) or _capi.USAGE
        finally:
            for user in _in_order(comm.users):
                user.close()
            comm._address, comm._gone = None, "ended with its call of run_ranks()"

    status = lib.run_ranks(int32(integer(ranks, "ranks")), _capi.Body(of_rank), None)
    if failures:
        raise failures[0]
    check(status)
    return [results[rank] for rank in range(len(results))]
