"""Errors of requests to a controller, in whole sentences."""

from __future__ import annotations

from collections.abc import Sequence


class SeatrialError(Exception):
    """An error that a person can fix."""

    def __init__(self, *lines: str) -> None:
        """`lines` are whole sentences."""
        super().__init__("\n".join(lines))
        self.lines = lines


class NoControllerError(SeatrialError):
    """No controller answered; trying again may help."""

    was_sent = False
    """Whether the request may have arrived, so that the controller may be acting on it."""


class RefusalError(SeatrialError):
    """The controller answered with a problem document."""

    def __init__(self, status: int, lines: Sequence[str], errors: Sequence[str] = ()) -> None:
        """`status` is HTTP's; `errors` are messages about places in a file, with their position."""
        super().__init__(*(errors or lines))
        self.status = status


class UnreadableAnswerError(SeatrialError):
    """The answer lacks what its record has, as an outcome that only newer versions have."""


class WaitedTooLongError(SeatrialError):
    """The run goes on, and the time is up."""


_GATEWAY = frozenset({502, 503, 504})


def is_out_of_reach(error: SeatrialError) -> bool:
    """Whether no controller answered: none was reached, or a proxy said that it reached none."""
    gateway = isinstance(error, RefusalError) and error.status in _GATEWAY
    return gateway or isinstance(error, NoControllerError)
