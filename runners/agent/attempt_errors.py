"""Reasons to end an attempt before its jobs are done."""

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
    """The module that would be imported is not the subject."""

    reason = "wrong_subject"


class NotReady(AttemptEnd):
    """The machine's device failed its check before the first test."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DiskFull(AttemptEnd):
    """The disk is full."""

    reason = "disk_full"


class Stopped(AttemptEnd):
    """A stop was requested, or the deadline has passed."""

    outcome = "stopped"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
