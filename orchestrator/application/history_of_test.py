"""History of a test over runs, under all its names, and aliases of tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import takewhile

from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.failure_signature import BAD, Signature
from orchestrator.domain.flaky import FlakyEvidence, ResultPoint, TestRun, flaky_evidence
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.grouping import grouped
from orchestrator.domain.known_issue import (
    CellScope,
    KnownIssueResponse,
    in_scope,
    is_match,
    issue_answer,
)
from orchestrator.domain.node_ids import (
    Alias,
    AliasState,
    FamilyChanges,
    KnownTest,
    Matching,
    NameChanges,
    Suggestion,
    compare_names,
    job_family,
    resolve,
)
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.quarantine import QuarantineState, state_of
from orchestrator.store.failure_groups import GroupMember
from orchestrator.store.grid_of_tests import CellResult, GridCell
from orchestrator.store.stores import Stores


def suggest_aliases(context: Context, old_run: str, new_run: str) -> Matching:
    """Compare the tests of two runs, and store suggested aliases.

    Raises RunMissingError.
    """
    tests = {run: _by_family(context, run) for run in (old_run, new_run)}
    both = sorted(set(tests[old_run]) & set(tests[new_run]))
    decided = context.stores.aliases.list(product=_product(context, old_run))
    families, found = [], list[Alias]()
    for family in both:
        changes, aliases = _compare(
            context, tests[old_run][family], tests[new_run][family], decided
        )
        families.append(FamilyChanges(family, changes))
        found += aliases
    context.stores.aliases.suggest(found)
    pairs = {(one.old_test, one.new_test) for one in found}
    stored = context.stores.aliases.list(product=_product(context, old_run))
    mine = tuple(one for one in stored if (one.old_test, one.new_test) in pairs)
    return Matching(old_run, new_run, tuple(families), mine)


def _product(context: Context, run_id: str) -> str:
    return context.stores.runs.spec(run_id).manifest.name


def _by_family(context: Context, run_id: str) -> dict[str, list[KnownTest]]:
    find_run(context.stores, run_id)
    return grouped((job_family(test.job), test) for test in context.stores.tests.of_run(run_id))


def _compare(
    context: Context,
    before: Iterable[KnownTest],
    after: Iterable[KnownTest],
    decided: Iterable[Alias],
) -> tuple[NameChanges, list[Alias]]:
    old = {test.nodeid: test for test in before}
    new = {test.nodeid: test for test in after}
    changes = compare_names(
        old,
        new,
        context.similarity.names,
        confirmed=_confirmed(context, old, new),
        rejected={(a.old, a.new) for a in decided if a.state is AliasState.REJECTED},
    )
    now = context.clock.now()
    return changes, [_alias(one, old[one.old], new[one.new], now) for one in changes.suggestions]


def _confirmed(
    context: Context, old: Mapping[str, KnownTest], new: Mapping[str, KnownTest]
) -> dict[str, str]:
    """Return the newest name by older name, through any number of aliases."""
    aliases = context.stores.aliases.confirmed()
    names = {test.id: name for name, test in new.items()}
    newest = {name: resolve(test.id, aliases) for name, test in old.items()}
    return {name: names[test] for name, test in newest.items() if test in names and name not in new}


def _alias(one: Suggestion, old: KnownTest, new: KnownTest, now: datetime) -> Alias:
    return Alias(
        id=0,
        product=new.product,
        job=new.job,
        old_test=old.id,
        old=one.old,
        new_test=new.id,
        new=one.new,
        change=one.change,
        similarity=one.similarity,
        state=AliasState.SUGGESTED,
        suggested_at=now,
    )


def decide_alias(context: Context, alias_id: int, state: AliasState, *, by: str) -> Alias | None:
    """Store a person's decision on an alias; SUGGESTED withdraws it. None for an unknown alias.

    Raises AliasConflictError if it contradicts a confirmed alias.
    """
    at = None if state is AliasState.SUGGESTED else context.clock.now()
    who = "" if state is AliasState.SUGGESTED else by
    return context.stores.aliases.decide(alias_id, state, at=at, by=who)


@dataclass(frozen=True, slots=True)
class TestHistory:
    """A test with its results under all its names."""

    __test__ = False

    test: KnownTest
    """The test under its newest name."""
    names: tuple[KnownTest, ...]
    """Its confirmed older names."""
    goes: tuple[TestRun, ...]
    """Newest first."""
    flaky: FlakyEvidence
    """Flakiness of these results."""


def history_of(stores: Stores, test_id: int, *, limit: int) -> TestHistory | None:
    """Return the history of a test by any of its names; None for an unknown test."""
    known = names_of(stores, test_id)
    if known is None:
        return None
    test, names = known
    goes = stores.tests.history([test.id, *(one.id for one in names)], limit=limit)
    evidence = flaky_evidence(reversed(goes))
    return TestHistory(test, names, tuple(goes), evidence)


def names_of(stores: Stores, test_id: int) -> tuple[KnownTest, tuple[KnownTest, ...]] | None:
    """Return a test under its newest name, with the older ones, by any of its names."""
    aliases = stores.aliases.confirmed()
    newest = resolve(test_id, aliases)
    known = {one.id: one for one in stores.grids.some([newest, *_older(newest, aliases)])}
    test = known.pop(newest, None)
    return None if test is None else (test, tuple(known[one] for one in sorted(known)))


def _older(newest: int, aliases: Mapping[int, int]) -> list[int]:
    return sorted(old for old in aliases if old != newest and resolve(old, aliases) == newest)


_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """When a test began to fail in a cell, where it still fails."""

    first_bad: CellResult
    last_good: CellResult | None
    """The last passing run; None if none is known."""
    failures: int
    """Consecutive failures up to the newest result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTestHistory:
    """Results of a test in the cells of one name."""

    cell: str
    goes: Sequence[CellResult]
    """Newest first."""
    counts: Counts
    """Flakiness of these results."""
    broken: Regression | None
    """The regression; None if the test passes now or is gone."""
    gone: GridCell | None = None
    """The first newer cell whose run of the job does not have the test."""

    @property
    def now(self) -> CellResult | None:
        """Return the cell's newest result, without unreported results of running cells."""
        return next((go for go in self.goes if not _is_to_come(go)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDetail:
    """A test in detail."""

    __test__ = False

    test: KnownTest
    """The test under its newest name."""
    names: Sequence[KnownTest]
    """Older names."""
    cells: Sequence[CellTestHistory]
    """Worst first, then by name; those where it is gone last."""
    flaky: FlakyEvidence
    """Flakiness of these results, each cell name by itself."""
    signatures: Mapping[str, Signature]
    """Signatures of its failures here."""
    failure: CellResult | None
    """The newest failure anywhere."""
    message: str
    """Traceback of the newest failure, or its message if no traceback is stored."""
    issues: Sequence[KnownIssueResponse]
    quarantines: Sequence[Quarantine]
    """Active quarantines."""


def follow_test(stores: Stores, test_id: int, *, each: int, at: datetime) -> TestDetail | None:
    """Return a test in detail, by any of its names; None for an unknown test.

    Args:
        stores: Every store.
        test_id: Number of any of its names.
        each: Maximum number of results, newest first, for each name of a cell.
        at: The present time, for quarantines that have expired.
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
        cells=_cells(stores, goes),
        flaky=flaky_evidence(_go(go) for go in reversed(goes) if not _is_to_come(go)),
        signatures=signatures,
        failure=newest,
        message=_sentence(stores, newest) if newest is not None else "",
        issues=_issues(stores, test, failures, signatures, at.date()),
        quarantines=_quarantines(stores, [test, *names], at),
    )


def _sentence(stores: Stores, failure: CellResult) -> str:
    """Return the traceback, or the message where none is stored."""
    message = stores.grids.message(failure.number, failure.test)
    return (
        stores.failure_groups.traceback(GroupMember(failure.test, failure.number, message))
        or message
    )


def _is_to_come(go: CellResult) -> bool:
    return go.is_alive and go.outcome is TestOutcome.MISSING


def _go(go: CellResult) -> ResultPoint:
    return ResultPoint(go.run, go.version, go.build, go.cell, go.outcome, go.earlier)


def _cells(stores: Stores, goes: Iterable[CellResult]) -> list[CellTestHistory]:
    by_name = grouped((go.cell, go) for go in goes)
    gone = stores.grids.gone([(some[0].test, some[0].number) for some in by_name.values()])
    stories = (_story(name, some, gone.get((some[0].test, name))) for name, some in by_name.items())
    return sorted(stories, key=_rank)


def _story(cell: str, goes: Sequence[CellResult], gone: GridCell | None) -> CellTestHistory:
    tally: dict[TestOutcome, int] = {}
    for go in goes:
        if not _is_to_come(go):
            tally[go.outcome] = tally.get(go.outcome, 0) + 1
    return CellTestHistory(
        cell=cell,
        goes=goes,
        counts=Counts.from_tally(tally),
        broken=None if gone else _broken(goes),
        gone=gone,
    )


def _rank(story: CellTestHistory) -> tuple[int, str]:
    now = story.now
    if story.gone is not None:
        return 3, story.cell
    if now is not None and now.outcome in BAD:
        return 0, story.cell
    return (2 if now is not None and now.outcome in _GOOD else 1), story.cell


def _broken(goes: Sequence[CellResult]) -> Regression | None:
    """Return the regression; skips and missing reports are ignored."""
    judged = [go for go in goes if go.outcome in BAD | _GOOD]
    failing = list(takewhile(lambda go: go.outcome in BAD, judged))
    if not failing:
        return None
    good = judged[len(failing)] if len(failing) < len(judged) else None
    return Regression(first_bad=failing[-1], last_good=good, failures=len(failing))


def _issues(
    stores: Stores,
    test: KnownTest,
    failures: Sequence[CellResult],
    signatures: Mapping[str, Signature],
    on: date,
) -> list[KnownIssueResponse]:
    """Return the issues that match at least one failure, expired ones included."""
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
        if in_scope(issue, _ran(go, test, packages.get(go.number, {})))
    }
    return [issue_answer(one, on) for one in found.values()]


def _ran(go: CellResult, test: KnownTest, packages: Mapping[str, str]) -> CellScope:
    platform = go.cell.partition(".")[0]
    return CellScope(go.cell, platform, go.version, (test.job,), packages, test.nodeid)


def _quarantines(stores: Stores, tests: Sequence[KnownTest], at: datetime) -> list[Quarantine]:
    names = {one.nodeid for one in tests}
    return [
        one
        for one in stores.quarantines.list(product=tests[0].product)
        if one.nodeid in names and state_of(one, at) is QuarantineState.ACTIVE
    ]
