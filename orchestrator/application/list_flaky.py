"""Lists flaky tests of a product, and its quarantines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from orchestrator.application.context import Context
from orchestrator.domain.failure_signature import Signature
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.flaky import (
    DatedResult,
    FailureOrigin,
    FlakyEvidence,
    FlakySignal,
    ResultPair,
    ResultPoint,
    counted,
    failure_origin,
    flaky_evidence,
    flaky_signal,
    pair_of,
    suspects,
)
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.node_ids import KnownTest, resolve
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.quarantine import QuarantineState, is_about, passes_in_a_row, state_of
from orchestrator.store.failure_groups import Failing, TestOutcomes, WindowCell
from orchestrator.store.stores import Stores

WEIGHED = 40
"""Maximum suspects whose whole history is read; the rest are only counted."""
_BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
_Seen = tuple[int, TestOutcome, tuple[TestOutcome, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyTest:
    """A test with contradicting outcomes, with the evidence for it."""

    test: KnownTest
    how: FlakySignal
    whose: FailureOrigin
    evidence: FlakyEvidence
    pair: ResultPair | None
    platforms: tuple[str, ...]
    """Platforms of the counted results where it failed, or passed on retry."""
    last_seen: datetime
    """Time of the newest of these."""
    signatures: tuple[str, ...]
    """Signatures of its failures, most frequent first."""
    quarantines: tuple[Quarantine, ...]
    """Its active quarantines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedQuarantine:
    """A quarantine with the test's results since its begin."""

    quarantine: Quarantine
    state: QuarantineState
    test_id: int | None
    failures: int
    """Failing results of runs since it was opened, of those read. A gate may have excused older
    ones too, if the quarantine was active on the day of its verdict.
    """
    passes: int | None
    """Fewest consecutive passes on any platform since then; None if nothing ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyReview:
    """Flaky tests of a product."""

    tests: Sequence[FlakyTest]
    """Surest and most frequent failures first."""
    quarantines: Sequence[ListedQuarantine]
    """Active ones first, then newest."""
    runs: int
    suspects: int
    """Number of suspects, of which at most `WEIGHED` were read."""


@dataclass(frozen=True, slots=True)
class _FlakyResults:
    """Results of the cells that are read."""

    cells: Mapping[int, WindowCell]
    """Finished cells with passed or failed tests."""
    failing: Sequence[Failing]
    """Failing tests by their newest names."""
    retried: Mapping[tuple[int, int], tuple[TestOutcome, ...]]
    """Outcomes of earlier tries by test, under its name then, and cell."""
    aliases: Mapping[int, int]
    """Newer tests by the older ones."""
    _made: dict[_Seen, DatedResult] = field(default_factory=dict)

    def goes(self, one: TestOutcomes) -> Iterator[DatedResult]:
        """Return results in the form that flaky detection takes."""
        for pk in one.cells:
            yield self._go(pk, one.outcome, self.retried.get((one.test_id, pk), ()))

    def _go(self, pk: int, outcome: TestOutcome, earlier: tuple[TestOutcome, ...]) -> DatedResult:
        """Cache results: most of a cell are equal."""
        known = self._made.get((pk, outcome, earlier))
        if known is None:
            cell = self.cells[pk]
            # Two environments of one platform are two places: a test may fail in one of them.
            go = ResultPoint(cell.run_id, cell.version, cell.build, cell.name, outcome, earlier)
            known = self._made[pk, outcome, earlier] = DatedResult(go, cell.platform, cell.at)
        return known


def list_flaky(context: Context, product: str, *, runs: int) -> FlakyReview:
    """Rank tests by evidence of flakiness, and return the state of each quarantine."""
    stores, now = context.stores, context.clock.now()
    looked = stores.failure_groups.cells(product, runs=runs)
    history = _history(stores, looked.cells)
    asked, many = _suspects(history)
    confined = stores.quarantines.list(product=product)
    held = stores.failure_groups.find_tests(product, {one.nodeid for one in confined})
    goes = _goes(stores, history, {*asked, *(test.id for test in held)})
    active = [one for one in confined if state_of(one, now) is QuarantineState.ACTIVE]
    return FlakyReview(
        tests=_weighed(stores, history, {test: goes.get(test, []) for test in asked}, active),
        quarantines=_quarantines(confined, held, goes, now),
        runs=looked.runs,
        suspects=many,
    )


def _history(stores: Stores, looked: Mapping[int, WindowCell]) -> _FlakyResults:
    outcomes_of = stores.failure_groups.suites(looked)
    cells = {pk: cell for pk, cell in looked.items() if pk in outcomes_of}
    aliases = stores.aliases.confirmed()
    failing = [
        replace(one, test_id=resolve(one.test_id, aliases)) if one.test_id in aliases else one
        for one in stores.failure_groups.failing(cells)
    ]
    return _FlakyResults(cells, failing, stores.failure_groups.retried(cells), aliases)


def _suspects(history: _FlakyResults) -> tuple[list[int], int]:
    cells = history.cells
    retried = [
        resolve(test, history.aliases)
        for (test, _), earlier in history.retried.items()
        if _BAD.intersection(earlier)
    ]
    ran: dict[str, list[WindowCell]] = {}
    for cell in sorted(cells.values(), key=lambda cell: (cell.at, cell.pk)):
        ran.setdefault(cell.name, []).append(cell)
    position = {cell.pk: at for some in ran.values() for at, cell in enumerate(some)}
    failing = (
        (one.test_id, cells[pk].name, position[pk]) for one in history.failing for pk in one.cells
    )
    builds = {place: [cell.build for cell in some] for place, some in ran.items()}
    return suspects(retried, failing, builds, most=WEIGHED)


def _goes(
    stores: Stores, history: _FlakyResults, tests: Collection[int]
) -> Mapping[int, Sequence[DatedResult]]:
    """Return results by test, oldest first."""
    older = {old for old in history.aliases if resolve(old, history.aliases) in tests}
    goes: dict[int, list[DatedResult]] = {}
    for one in stores.failure_groups.outcomes_of({*tests, *older}, history.cells):
        goes.setdefault(resolve(one.test_id, history.aliases), []).extend(history.goes(one))
    return {test: sorted(some, key=_when) for test, some in goes.items()}


def _when(one: DatedResult) -> tuple[datetime, str, str]:
    return one.at, one.go.run, one.go.platform


def _weighed(
    stores: Stores,
    history: _FlakyResults,
    goes: Mapping[int, Sequence[DatedResult]],
    active: Sequence[Quarantine],
) -> list[FlakyTest]:
    """Return flaky tests, likeliest first."""
    tests = stores.failure_groups.tests(goes)
    had: dict[int, Counter[str]] = {}
    for one in history.failing:
        if one.test_id in goes:
            had.setdefault(one.test_id, Counter())[one.signature] += len(one.cells)
    signatures = stores.failure_groups.named({name for some in had.values() for name in some})
    found = []
    for test, some in goes.items():
        evidence = flaky_evidence(one.go for one in some)
        shows = flaky_signal(evidence)
        if shows is None or test not in tests:
            continue
        names = had.get(test, Counter())
        found.append(_flaky(tests[test], shows, evidence, some, names, signatures, active))
    return sorted(found, key=lambda one: (-one.evidence.min_failure_rate, one.test.id))


def _flaky(
    test: KnownTest,
    shows: FlakySignal,
    evidence: FlakyEvidence,
    goes: Sequence[DatedResult],
    names: Counter[str],
    signatures: Mapping[str, Signature],
    active: Sequence[Quarantine],
) -> FlakyTest:
    shown = [one for one in goes if one.is_bad or one.is_retried]
    judged = counted(one.go for one in goes)
    where = [one for one in shown if one.go in judged] or shown
    classes = Counter[FailureClass]()
    for name, many in names.items():
        if name in signatures:
            classes[signatures[name].kind] += many
    platforms = tuple(sorted({one.platform for one in where}))
    return FlakyTest(
        test=test,
        how=shows,
        whose=failure_origin(classes),
        evidence=evidence,
        pair=pair_of(goes),
        platforms=platforms,
        last_seen=max(one.at for one in where),
        signatures=tuple(name for name, _ in names.most_common() if name),
        quarantines=tuple(
            one for one in active if any(is_about(one, test.nodeid, p) for p in platforms)
        ),
    )


def _quarantines(
    confined: Sequence[Quarantine],
    held: Sequence[KnownTest],
    goes: Mapping[int, Sequence[DatedResult]],
    now: datetime,
) -> list[ListedQuarantine]:
    """Return quarantines: active ones first, newest first within a state."""
    shown = []
    for one in confined:
        tests = [test for test in held if test.nodeid == one.nodeid]
        shown.append(_shown(one, tests, goes, now))
    order = list(QuarantineState)
    newest_first = sorted(shown, key=lambda one: one.quarantine.opened, reverse=True)
    return sorted(newest_first, key=lambda one: order.index(one.state))


def _shown(
    one: Quarantine,
    tests: Sequence[KnownTest],
    goes: Mapping[int, Sequence[DatedResult]],
    now: datetime,
) -> ListedQuarantine:
    """Return a quarantine with the results of its tests: one of that name in each job."""
    since = [
        [go for go in goes.get(test.id, ()) if go.at >= one.opened and _is_held(one, go)]
        for test in tests
    ]
    streaks = [passes_in_a_row(go.go for go in some) for some in since]
    until = one.ended_at or one.expires
    return ListedQuarantine(
        quarantine=one,
        state=state_of(one, now),
        test_id=tests[0].id if tests else None,
        failures=sum(1 for some in since for go in some if go.is_bad and go.at < until),
        passes=min((passes for streak in streaks for passes in streak.values()), default=None),
    )


def _is_held(one: Quarantine, go: DatedResult) -> bool:
    return is_about(one, one.nodeid, go.platform)
