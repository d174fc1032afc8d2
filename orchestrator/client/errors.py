"""Errors of requests to a controller, in whole sentences."""

from __future__ import annotations

from collections.abc import Sequence


class SeatrialError(Exception):
    """An error that a person can fix."""

    def __init__(self, *lines: str) -> None:
        """Store the message, which consists of `lines`: whole sentences."""
        super().__init__("\n".join(lines))
        self.lines = lines


class NoControllerError(SeatrialError):
    """No controller answered; trying again may help."""

    was_sent = False
    """Whether the request may have arrived, so that the controller may be acting on it."""


class RefusalError(SeatrialError):
    """The controller answered with a problem document."""

    def __init__(self, status: int, lines: Sequence[str], errors: Sequence[str] = ()) -> None:
        """Store the HTTP status and the message.

        `errors` replace `lines`: messages about a file, each with its position in the file.
        """
        super().__init__(*(errors or lines))
        self.status = status


class UnreadableAnswerError(SeatrialError):
    """The answer does not fit its record, such as an outcome that only newer versions know."""


class WaitedTooLongError(SeatrialError):
    """The time limit of a wait was reached; the run continues."""


_GATEWAY = frozenset({502, 503, 504})


def is_out_of_reach(error: SeatrialError) -> bool:
    """Whether no controller was reached: nothing answered, or a proxy answered 502, 503 or 504."""
    gateway = isinstance(error, RefusalError) and error.status in _GATEWAY
    return gateway or isinstance(error, NoControllerError)
