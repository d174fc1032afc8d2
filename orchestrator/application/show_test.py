"""One test over all versions and platforms: since when it is as it is, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import takewhile

from orchestrator.application.test_history import names_of
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.flaky import FlakyEvidence, ResultPoint, flaky_evidence
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import KnownIssue, Ran, in_scope, is_match
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.quarantine import QuarantineState, state_of
from orchestrator.domain.signature import BAD, Signature
from orchestrator.store.failure_groups import Place
from orchestrator.store.grids import CellGo
from orchestrator.store.stores import Stores

_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """When a test began to fail in a cell, where it still does."""

    first_bad: CellGo
    last_good: CellGo | None
    """None where nothing older is known that passed."""
    failures: int
    """In a row, the newest one being the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTestHistory:
    """How a test went in the cells of one name."""

    cell: str
    goes: Sequence[CellGo]
    """The newest first."""
    counts: Counts
    """Of these."""
    broken: Regression | None

    @property
    def now(self) -> CellGo | None:
        """Its newest result; what a live cell has not reported yet is none."""
        return next((go for go in self.goes if not _is_to_come(go)), None)

    @property
    def last_failure(self) -> CellGo | None:
        """The newest result that failed."""
        return next((go for go in self.goes if go.outcome in BAD), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedIssue:
    """A known issue that failures of the test fit."""

    issue: KnownIssue
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDetail:
    """What is known of a test."""

    __test__ = False

    test: KnownTest
    """Under its newest name."""
    names: Sequence[KnownTest]
    """Its older ones."""
    cells: Sequence[CellTestHistory]
    """The worst first, then by name."""
    flaky: FlakyEvidence
    """Of these results, each name of a cell by itself."""
    signatures: Mapping[str, Signature]
    """Of its failures here."""
    failure: CellGo | None
    """The newest one anywhere."""
    message: str
    """That one's: all that is stored of what it said."""
    issues: Sequence[LinkedIssue]
    quarantines: Sequence[Quarantine]
    """That stand."""


def follow_test(stores: Stores, test_id: int, *, each: int, at: datetime) -> TestDetail | None:
    """The story of a test, by any of its names; None where there is no such test.

    Args:
        stores: Every store.
        test_id: Its number.
        each: So many newest results are looked at for each name of a cell.
        at: Now.
    """
    known = names_of(stores, test_id)
    if known is None:
        return None
    test, names = known
    goes = stores.grids.strips([test.id, *(one.id for one in names)], each=each)
    failures = [go for go in goes if go.outcome in BAD]
    newest = max(failures, key=lambda go: go.at, default=None)
    signatures = stores.failure_groups.named({go.signature for go in failures if go.signature})
    return TestDetail(
        test=test,
        names=names,
        cells=_cells(goes),
        flaky=flaky_evidence(_go(go) for go in reversed(goes) if not _is_to_come(go)),
        signatures=signatures,
        failure=newest,
        message=_said(stores, newest) if newest is not None else "",
        issues=_issues(stores, test, failures, signatures, at.date()),
        quarantines=_quarantines(stores, [test, *names], at),
    )


def _said(stores: Stores, failure: CellGo) -> str:
    """The traceback, or where none is stored the message."""
    message = stores.grids.said(failure.number, failure.test)
    return stores.failure_groups.traceback(Place(failure.test, failure.number, message)) or message


def _is_to_come(go: CellGo) -> bool:
    return go.is_alive and go.outcome is TestOutcome.MISSING


def _go(go: CellGo) -> ResultPoint:
    return ResultPoint(go.run, go.version, go.cell, go.outcome, go.earlier)


def _cells(goes: Iterable[CellGo]) -> list[CellTestHistory]:
    by_name: dict[str, list[CellGo]] = {}
    for go in goes:
        by_name.setdefault(go.cell, []).append(go)
    return sorted((_story(name, some) for name, some in by_name.items()), key=_rank)


def _story(cell: str, goes: Sequence[CellGo]) -> CellTestHistory:
    tally: dict[TestOutcome, int] = {}
    for go in goes:
        if not _is_to_come(go):
            tally[go.outcome] = tally.get(go.outcome, 0) + 1
    return CellTestHistory(cell=cell, goes=goes, counts=Counts.of(tally), broken=_broken(goes))


def _rank(story: CellTestHistory) -> tuple[int, str]:
    now = story.now
    if now is not None and now.outcome in BAD:
        return 0, story.cell
    return (2 if now is not None and now.outcome in _GOOD else 1), story.cell


def _broken(goes: Sequence[CellGo]) -> Regression | None:
    """Skips and what was not reported say nothing of when it broke."""
    judged = [go for go in goes if go.outcome in BAD | _GOOD]
    failing = list(takewhile(lambda go: go.outcome in BAD, judged))
    if not failing:
        return None
    good = judged[len(failing)] if len(failing) < len(judged) else None
    return Regression(first_bad=failing[-1], last_good=good, failures=len(failing))


def _issues(
    stores: Stores,
    test: KnownTest,
    failures: Sequence[CellGo],
    signatures: Mapping[str, Signature],
    on: date,
) -> list[LinkedIssue]:
    """Those that fit at least one of the failures, expired ones too."""
    newest = {(go.signature, go.cell, go.version): go for go in reversed(failures)}
    issues = stores.known_issues.list(product=test.product) if newest else []
    wanted = [
        (issue, go)
        for issue in issues
        for go in newest.values()
        if go.signature in signatures and is_match(issue.match, signatures[go.signature])
    ]
    asked = {go.number for issue, go in wanted if issue.scope.requires_package}
    packages = stores.failure_groups.packages(asked) if asked else {}
    found = {
        issue.id: issue
        for issue, go in wanted
        if in_scope(issue, _ran(go, test.job, packages.get(go.number, {})))
    }
    return [LinkedIssue(issue=one, is_expired=one.is_expired(on)) for one in found.values()]


def _ran(go: CellGo, job: str, packages: Mapping[str, str]) -> Ran:
    platform = go.cell.partition(".")[0]
    return Ran(go.cell, platform, go.version, (job,), packages)


def _quarantines(stores: Stores, tests: Sequence[KnownTest], at: datetime) -> list[Quarantine]:
    names = {one.nodeid for one in tests}
    return [
        one
        for one in stores.quarantines.list(product=tests[0].product)
        if one.nodeid in names and state_of(one, at) is QuarantineState.ACTIVE
    ]
