"""Why an attempt ends before its jobs are done."""

from __future__ import annotations


class AttemptEnd(Exception):  # noqa: N818 - a stop that somebody asked for is no error
    """The attempt ends here; the text is for a person."""

    outcome = "errored"
    reason = "agent"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class EnvironmentFailed(AttemptEnd):
    """The environment for the jobs could not be made."""

    reason = "environment"


class WrongSubject(AttemptEnd):
    """What would be imported is not what was to be validated."""

    reason = "wrong_subject"


class NotReady(AttemptEnd):
    """The machine's device cannot do what was promised, before any test has touched it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DiskFull(AttemptEnd):
    """Nothing more can be written."""

    reason = "disk_full"


class Stopped(AttemptEnd):
    """A stop was requested, or the deadline has passed."""

    outcome = "stopped"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
