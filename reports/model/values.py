"""Elementary values of reports: missing values, tallies, rates, statuses, claims."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Absent:
    """A missing value with its reason."""

    reason: str
    """A few words for a person."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of a whole. Derived: ``percent = 100 * part / whole``, not rounded."""

    part: int
    whole: int
    percent: float | Absent
    """Absent where the whole is nothing."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of tests by outcome."""

    passed: int
    failed: int
    error: int
    skipped: int
    xfailed: int
    xpassed: int
    missing: int
    not_run: int
    collected: int
    """Derived: the sum of the eight."""
    rate: Rate
    """Derived: ``passed / (passed + failed + error)``."""

    @property
    def bad(self) -> int:
        """Tests that keep a suite from passing."""
        return self.failed + self.error + self.missing + self.not_run


@dataclass(frozen=True, slots=True)
class CheckTally:
    """Numbers of checks by outcome; ``rate`` is ``passed / (passed + failed)``."""

    passed: int
    failed: int
    skipped: int
    rate: Rate


@dataclass(frozen=True, slots=True)
class Status:
    """An outcome with its reason, or the state of an unfinished item."""

    code: str
    """An outcome's value, or ``running`` or ``queued``."""
    reason: str = ""
    degraded: str | None = None
    """Why it ran, but not the way it should have."""
    nothing_passed: str = ""
    """``no test passed: 29 skipped``, where all its tests were passed over."""
    ended_by: str = ""
    """``cancelled; 3 failed``, where something else than its failures ended it."""
    flaky: str = ""
    """``2 flaky``, where so many of its passed tests failed first."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of a conclusion with the figures that it rests on."""

    rule: str
    """Which figures of the report these are; the linter looks them up."""
    figures: tuple[int, ...]
    """In the order in which the text names them."""
    text: str


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A contradiction that the linter found by recomputing."""

    level: str
    """``error`` keeps the report from being published, ``warning`` is printed in it."""
    rule: str
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Footer:
    """The source of a report."""

    run_id: str
    evidence_sha256: str | Absent
    template: str
    """Kind and version of the template."""
    wheel_sha256: str | Absent
    """Of the subject's wheel."""
    commit: str = ""
    """What was tested, where its repository is known: ``1f0c2d9a41b2 on main by Ann``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """Fields of all kinds of reports."""

    kind: str
    title: str
    subject: str
    version: str
    unfinished: str | None
    """Why the figures are not the last ones; None when they are."""
    conclusion: tuple[Claim, ...]
    footer: Footer
    remarks: tuple[Contradiction, ...] = ()
    """What the linter warns of."""
