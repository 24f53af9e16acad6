"""Exceptions: one for each status of the C API, with the library's own text."""


class Error(RuntimeError):
    """What the library refused or could not do, on one line: problem (why): suggestion."""

    status = 0

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))  # an array that is quoted has lines


class UsageError(Error, ValueError):
    """Bad input, or a combination that is not supported."""

    status = 2


class UnavailableError(Error):
    """A backend that is not built or not usable here, or too little memory."""

    status = 3


class RankTimeoutError(Error, TimeoutError):
    """An awaited rank made no progress."""

    status = 4


class PeerError(Error):
    """Another rank failed or disagreed."""

    status = 5


class EndedError(Error):
    """The run was ended from outside, as by Comm.abort()."""

    status = 130


_BY_STATUS = {kind.status: kind for kind in (UsageError, UnavailableError, RankTimeoutError, PeerError, EndedError)}


def error_of(status: int, message: str) -> Error:
    """The exception for a status other than 0."""
    return _BY_STATUS.get(status, Error)(message)
