"""Failures by signature, and known issues, as the controller shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.cli.machine_responses import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What is the same of all failures of one kind."""

    id: Words = ""
    kind: Words = ""
    exception: Words = ""
    frame: Words = ""
    message: Words = ""

    def __str__(self) -> str:
        where = f" at {self.frame}" if self.frame else ""
        said = f": {self.message}" if self.message else ""
        return f"{self.exception or 'failure'}{where}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Failures of one signature."""

    signature: Signature = field(default_factory=Signature)
    count: int = 0
    cells: tuple[str, ...] = ()
    known_issues: tuple[str, ...] = ()
    tolerated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A failing result whose test is in quarantine."""

    id: Words = ""
    nodeid: Words = ""
    cell: Words = ""
    owner: Words = ""
    expires: Words = ""
    state: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """A failing test that ran again, and who broke it."""

    cell: Words = ""
    job: Words = ""
    nodeid: Words = ""
    answer: Words = ""
    sentence: Words = ""
    tried: Words = ""

    def __str__(self) -> str:
        return f"{self.job}::{self.nodeid}" if self.nodeid else self.job


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueUse:
    """A known issue in a run."""

    id: Words = ""
    title: Words = ""
    state: Words = ""
    count: int = 0
    max_failures: int | None = None
    expired_days: int = 0
