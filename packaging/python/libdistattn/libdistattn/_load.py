"""Finds and loads the shared library: this wheel's, or the system's."""

import ctypes
import os
import pathlib
from collections.abc import Iterator

# Set to anything but 0, it takes the system's library before that of the wheel.
SYSTEM_FIRST = "LIBDISTATTN_PREFER_SYSTEM_LIBRARY"
NAME = "libdistattn.so"
SYSTEM_NAME = "libdistattn.so.0.1"

prefix = pathlib.Path(__file__).resolve().parent


def _places() -> Iterator[str]:
    own = str(prefix / "lib" / NAME)
    yield from (SYSTEM_NAME, own) if os.environ.get(SYSTEM_FIRST, "0") not in ("", "0") else (own, SYSTEM_NAME)


def _load_nccl() -> None:
    """Loads the NCCL that a wheel brought, if there is a GPU, so that the library finds it by name. torch's is one."""
    if not os.path.exists("/dev/nvidiactl"):
        return
    for folder in sorted(prefix.parent.glob("nvidia/nccl/lib")):
        try:
            ctypes.CDLL(str(folder / "libnccl.so.2"), mode=ctypes.RTLD_LOCAL)
        except OSError:
            continue  # the library looks for the system's


def load_library() -> ctypes.CDLL:
    """The library, loaded for this caller alone (RTLD_LOCAL). OSError if it cannot be loaded."""
    _load_nccl()
    reasons = []
    for place in _places():
        try:
            return ctypes.CDLL(place, mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            reasons.append(str(error))
    raise OSError("; ".join(reasons))
