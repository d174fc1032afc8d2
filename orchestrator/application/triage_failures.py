"""Triage of failure groups over many runs: matches known issues and quarantines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from orchestrator.domain.failure_signature import Signature
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.grouping import grouped
from orchestrator.domain.known_issue import CellScope, KnownIssue, in_scope, is_match
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.quarantine import QuarantineState, is_about, state_of
from orchestrator.store.failure_groups import CellFailureGroup, Place, WindowCell
from orchestrator.store.stores import Stores

NEW_FOR = timedelta(days=7)
"""A failure group first seen within this time is new."""


class TriageStatus(StrEnum):
    """Triage status of a failure group, most urgent first."""

    NEW = "new"
    """Without an owner, and first seen within a week."""
    LAPSED = "lapsed"
    """Only known issues match that have expired or that a person ended."""
    UNOWNED = "unowned"
    """Without an owner for more than a week."""
    QUARANTINED = "quarantined"
    """All of its tests are quarantined where they fail."""
    KNOWN = "known"
    """Known issues explain all of its results."""


@dataclass(frozen=True, slots=True)
class TriageInputs:
    """Known issues and quarantines that concern a failure group."""

    issues: tuple[KnownIssue, ...] = ()
    """Issues that apply to at least one of its results."""
    over: tuple[KnownIssue, ...] = ()
    """Expired or ended issues that would apply."""
    quarantines: tuple[Quarantine, ...] = ()
    """Active quarantines that cover all of its tests wherever they fail."""
    tolerated: int = 0
    """Results that an issue applies to."""

    @property
    def owners(self) -> tuple[str, ...]:
        """The present owners, or the last ones."""
        now = [issue.owner for issue in self.issues] + [one.owner for one in self.quarantines]
        return tuple(dict.fromkeys(now or [issue.owner for issue in self.over]))

    def status(self, count: int, *, first_seen: datetime, now: datetime) -> TriageStatus:
        """Return the status of a group of `count` results."""
        if self.tolerated >= count:
            return TriageStatus.KNOWN
        if self.quarantines:
            return TriageStatus.QUARANTINED
        if self.over:
            return TriageStatus.LAPSED
        return TriageStatus.NEW if now - first_seen <= NEW_FOR else TriageStatus.UNOWNED


Packages = Mapping[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresToTriage:
    """Failing results with the data for their triage."""

    groups: Sequence[CellFailureGroup]
    cells: Mapping[int, WindowCell]
    signatures: Mapping[str, Signature]
    tests: Mapping[str, Mapping[int, int]]
    """Numbers of results by signature and test."""


def meant(
    stores: Stores, issues: Sequence[KnownIssue], failures: FailuresToTriage
) -> Mapping[str, Sequence[CellFailureGroup]]:
    """Return the matching groups by issue id, expired issues included."""
    successors_of = successors_of_issues(stores, issues)
    by_signature = grouped((group.signature, group) for group in failures.groups)
    fitting = {
        issue.id: [
            group
            for name, groups in by_signature.items()
            if name in failures.signatures
            and is_match(issue.match, failures.signatures[name], successors_of)
            for group in groups
        ]
        for issue in issues
    }
    packages = _packages(stores, issues, fitting)
    found = {
        issue.id: [one for one in fitting[issue.id] if _fits(issue, one, failures.cells, packages)]
        for issue in issues
    }
    return _of_named_tests(stores, issues, found)


def _of_named_tests(
    stores: Stores, issues: Sequence[KnownIssue], found: Mapping[str, Sequence[CellFailureGroup]]
) -> Mapping[str, Sequence[CellFailureGroup]]:
    """Return the groups; of an issue that names tests, each with the number of these alone."""
    naming = [issue for issue in issues if issue.scope.tests]
    asked = {group for issue in naming for group in found[issue.id]}
    if not asked:
        return found
    results = stores.failure_groups.failing_tests(
        {group.cell for group in asked}, {group.signature for group in asked}
    )
    told = dict(found)
    for issue in naming:
        numbers = Counter(place for place, nodeid in results if issue.scope.has_test(nodeid))
        told[issue.id] = [
            replace(group, count=numbers[group.place])
            for group in found[issue.id]
            if numbers[group.place]
        ]
    return told


def successors_of_issues(
    stores: Stores, issues: Iterable[KnownIssue]
) -> Mapping[str, frozenset[str]]:
    """Return the present signatures by the old ones that the issues name."""
    named = {issue.match.signature for issue in issues} - {""}
    return stores.failures.successors_of(named) if named else {}


def tests_ran(
    stores: Stores,
    product: str,
    issues: Sequence[KnownIssue],
    ran: Mapping[int, CellScope],
    successors_of: Mapping[str, frozenset[str]],
) -> Mapping[str, bool]:
    """Return by issue id whether a test that failed so before ran in the issue's scope.

    Issues that no failure of a test has ever matched are left out.

    Args:
        stores: What is stored.
        product: The product of the issues.
        issues: The known issues to look for.
        ran: The cells by number.
        successors_of: The present signatures by old ones (`successors_of_issues`).
    """
    named = {issue.match.signature for issue in issues} - {""}
    names = named.union(*(successors_of.get(name, ()) for name in named))
    candidates = stores.failure_groups.like([issue.match for issue in issues], names)
    matching = {
        issue.id: [one.id for one in candidates if is_match(issue.match, one, successors_of)]
        for issue in issues
    }
    failed = stores.failure_groups.failed_so(
        product, {name for names in matching.values() for name in names}
    )
    cells_of: dict[int, set[int]] = {}
    known = {test.id for tests in failed.values() for test in tests}
    for one in stores.failure_groups.outcomes_of(known, ran) if known else ():
        cells_of.setdefault(one.test_id, set()).update(one.cells)
    found: dict[str, bool] = {}
    for issue in issues:
        tests = {test for name in matching[issue.id] for test in failed.get(name, ())}
        if tests:
            found[issue.id] = any(
                in_scope(issue, replace(ran[cell], jobs=(test.job,), test=test.nodeid))
                for test in tests
                for cell in cells_of.get(test.id, ())
            )
    return found


def _packages(
    stores: Stores, issues: Sequence[KnownIssue], fitting: Mapping[str, Sequence[CellFailureGroup]]
) -> Packages:
    """Return packages of the cells where an issue requires some."""
    asking = [issue for issue in issues if issue.scope.requires_package]
    cells = {group.cell for issue in asking for group in fitting[issue.id]}
    return stores.failure_groups.packages(cells) if cells else {}


def _fits(
    issue: KnownIssue, group: CellFailureGroup, cells: Mapping[int, WindowCell], packages: Packages
) -> bool:
    cell = cells[group.cell]
    if issue.product != cell.product:
        return False
    installed = packages.get(cell.pk, {})
    return in_scope(
        issue, CellScope(cell.name, cell.platform, cell.version, (group.job,), installed)
    )


def answering(
    stores: Stores, failures: FailuresToTriage, *, now: datetime
) -> Mapping[str, TriageInputs]:
    """Return known issues, quarantines and notes by signature."""
    issues = stores.known_issues.list()
    by_issue = meant(stores, issues, failures) if failures.groups else {}
    explaining: dict[str, list[KnownIssue]] = {}
    explained: dict[str, set[CellFailureGroup]] = {}
    for issue in issues:
        for group in by_issue.get(issue.id, ()):
            known = explaining.setdefault(group.signature, [])
            if issue not in known:
                known.append(issue)
            if not issue.is_expired(now.date()):
                explained.setdefault(group.signature, set()).add(group)
    confined = _confined(stores, failures, now)
    return {
        name: _answering(
            explaining.get(name, ()), explained.get(name, ()), confined.get(name, ()), now
        )
        for name in failures.signatures
    }


def _answering(
    issues: Iterable[KnownIssue],
    explained: Iterable[CellFailureGroup],
    quarantines: Iterable[Quarantine],
    now: datetime,
) -> TriageInputs:
    known = list(issues)
    most: dict[Place, int] = {}
    for group in explained:  # issues that name tests may explain a part of the same results
        most[group.place] = max(most.get(group.place, 0), group.count)
    return TriageInputs(
        issues=tuple(one for one in known if not one.is_expired(now.date())),
        over=tuple(one for one in known if one.is_expired(now.date())),
        quarantines=tuple(quarantines),
        tolerated=sum(most.values()),
    )


def _confined(
    stores: Stores, failures: FailuresToTriage, now: datetime
) -> Mapping[str, tuple[Quarantine, ...]]:
    """Return active quarantines by signature, where they cover all of its tests."""
    active = [
        one for one in stores.quarantines.list() if state_of(one, now) is QuarantineState.ACTIVE
    ]
    if not active:
        return {}
    tests = stores.failure_groups.tests(
        {test for of_one in failures.tests.values() for test in of_one}
    )
    places: dict[str, set[str]] = {}
    for group in failures.groups:
        places.setdefault(group.signature, set()).add(failures.cells[group.cell].platform)
    told = {}
    for name, of_one in failures.tests.items():
        by = [_covering(active, tests.get(test), places.get(name, set())) for test in of_one]
        if by and all(by):
            told[name] = tuple(sorted({one for some in by for one in some}, key=lambda one: one.id))
    return told


def _covering(
    active: Sequence[Quarantine], test: KnownTest | None, platforms: Iterable[str]
) -> tuple[Quarantine, ...]:
    """Return quarantines that together cover the test on every platform; none otherwise."""
    if test is None:
        return ()
    mine = [one for one in active if one.product == test.product and one.nodeid == test.nodeid]
    by = [next((q for q in mine if is_about(q, test.nodeid, p)), None) for p in platforms]
    return tuple(dict.fromkeys(one for one in by if one)) if by and all(by) else ()


def most_in_a_run(
    groups: Iterable[CellFailureGroup], cells: Mapping[int, WindowCell]
) -> Counter[str]:
    """Return the number of failing results by run."""
    numbers: Counter[str] = Counter()
    for group in groups:
        numbers[cells[group.cell].run_id] += group.count
    return numbers
