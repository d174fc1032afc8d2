"""Why an attempt ends before its jobs are done."""

from __future__ import annotations


class Ending(Exception):  # noqa: N818 - a stop that somebody asked for is no error
    """The attempt ends here; the text is for a person."""

    outcome = "errored"
    reason = "agent"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class EnvironmentFailed(Ending):
    """The environment for the jobs could not be made."""

    reason = "environment"


class WrongSubject(Ending):
    """What would be imported is not what was to be validated."""

    reason = "wrong_subject"


class NotReady(Ending):
    """The machine's device cannot do what was promised, before any test has touched it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DiskFull(Ending):
    """Nothing more can be written."""

    reason = "disk_full"


class Stopped(Ending):
    """Somebody asked for it, or the deadline has come."""

    outcome = "stopped"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
