"""Groups failures by signature, and matches them with known issues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.application.triage_failures import (
    FailuresToTriage,
    meant,
    successors_of_issues,
    tests_ran,
)
from orchestrator.domain.cell import Run
from orchestrator.domain.failure_signature import Failure, FailureGroup, failure_groups
from orchestrator.domain.grouping import grouped
from orchestrator.domain.known_issue import (
    CellScope,
    IssueState,
    IssueUse,
    applying,
    kind_of,
    names_tests,
    uses,
    with_tests,
)
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.quarantine import Quarantined, active_ids, quarantined_of
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.store.failure_groups import CellFailureGroup
from orchestrator.store.stores import Stores


@dataclass(frozen=True, slots=True)
class RunFailures:
    """Failures of a run."""

    failure_groups: tuple[FailureGroup, ...]
    known_issues: tuple[IssueUse, ...]
    quarantined: tuple[Quarantined, ...] = ()


def explain_run(
    stores: Stores, run: Run, product: str, cells: Sequence[CellRecord], *, at: datetime
) -> RunFailures:
    """Group a run's failures by signature, and match the product's known issues.

    Args:
        stores: What is stored.
        run: The run.
        product: Its payload's name.
        cells: The run's cells, as in its record.
        at: The present time, for known issues and quarantines that have expired.
    """
    issues = stores.known_issues.list(product=product)
    has_bad = any(job.counts.failed or job.counts.error for cell in cells for job in cell.jobs)
    failures = stores.failures.of_run(run.id) if has_bad else []
    if not issues and not failures:
        return RunFailures((), ())
    confined = stores.quarantines.list(product=product)
    excused = quarantined_of(confined, failures, at=at)
    ran = scopes(run, cells)
    successors_of = successors_of_issues(stores, issues)
    used = uses(issues, failures, ran, on=at.date(), successors_of=successors_of)
    used = with_tests(used, _tests_ran(stores, run.id, product, used, ran, successors_of))
    packages = {cell.cell: cell.packages for cell in ran}
    by_test = names_tests(issues)
    kinds = [kind_of(failure, by_test=by_test) for failure in failures]
    by_kind = {
        kind: applying(used, one, packages.get(one.cell, {}), successors_of)
        for kind, one in dict(zip(kinds, failures, strict=True)).items()
    }
    held = active_ids(excused)
    told = _grouped(
        stores,
        failures,
        [
            (by_kind[kind], held.get((one.cell, one.job, one.nodeid), ""))
            for kind, one in zip(kinds, failures, strict=True)
        ],
    )
    return RunFailures(told, used, excused)


def explain_runs(
    stores: Stores, failures: Sequence[Failure], *, at: datetime
) -> tuple[FailureGroup, ...]:
    """Group failures of many runs by signature, and match the known issues of their products.

    Args:
        stores: What is stored.
        failures: Failing results of any runs.
        at: The present time, for known issues and quarantines that have expired.
    """
    cells = stores.failure_groups.cells_of({one.run_id for one in failures})
    numbers = {(cell.run_id, cell.name): pk for pk, cell in cells.items()}
    placed = [
        ((one.signature.id, one.job, numbers[one.run_id, one.cell]), one)
        for one in failures
        if (one.run_id, one.cell) in numbers
    ]
    found = FailuresToTriage(
        groups=[CellFailureGroup(*kind, n) for kind, n in Counter(k for k, _ in placed).items()],
        cells=cells,
        signatures={one.signature.id: one.signature for one in failures},
        tests={},
    )
    issues = [one for one in stores.known_issues.list() if not one.is_expired(at.date())]
    named = {issue.id: issue for issue in issues}
    by_kind = grouped(
        ((group.signature, group.job, group.cell), named[issue])
        for issue, groups in meant(stores, issues, found).items()
        for group in groups
    )
    held = {
        (product, *key): quarantine
        for product, some in grouped((cells[k[2]].product, one) for k, one in placed).items()
        for key, quarantine in active_ids(
            quarantined_of(stores.quarantines.list(product=product), some, at=at)
        ).items()
    }
    excuses = [
        (
            tuple(i.id for i in by_kind.get(kind, ()) if i.scope.has_test(one.nodeid)),
            held.get((cells[kind[2]].product, one.cell, one.job, one.nodeid), ""),
        )
        for kind, one in placed
    ]
    return _grouped(stores, [one for _, one in placed], excuses)


def _grouped(
    stores: Stores, failures: Sequence[Failure], excuses: Sequence[tuple[tuple[str, ...], str]]
) -> tuple[FailureGroup, ...]:
    """Group failures by signature; `excuses` are the known issues and quarantine of each."""
    explained = grouped((one.signature.id, by) for one, by in zip(failures, excuses, strict=True))
    spans = stores.failures.spans(explained)
    gathered = failure_groups(failures, spans)
    return tuple(_explained(one, explained[one.signature.id]) for one in gathered)


def _tests_ran(
    stores: Stores,
    run_id: str,
    product: str,
    used: Sequence[IssueUse],
    ran: Sequence[CellScope],
    successors_of: Mapping[str, frozenset[str]],
) -> Mapping[str, bool]:
    doubted = [use.issue for use in used if use.state is IssueState.STALE]
    if not doubted:
        return {}
    return tests_ran(stores, product, doubted, by_number(stores, {run_id: ran}), successors_of)


def by_number(stores: Stores, ran: Mapping[str, Sequence[CellScope]]) -> Mapping[int, CellScope]:
    """Return the cells of these runs by number."""
    named = {(run_id, cell.cell): cell for run_id, cells in ran.items() for cell in cells}
    return {
        pk: named[cell.run_id, cell.name]
        for pk, cell in stores.failure_groups.cells_of(ran).items()
        if (cell.run_id, cell.name) in named
    }


def scopes(run: Run, cells: Sequence[CellRecord]) -> list[CellScope]:
    """Return what ran in each cell."""
    return [_ran(run, cell) for cell in cells]


def _ran(run: Run, cell: CellRecord) -> CellScope:
    found = cell.probed.get("packages")
    packages = {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}
    jobs = tuple(job.id for job in cell.jobs if _has_run(job))
    return CellScope(cell.id, cell.platform.id, run.subject_version, jobs, packages)


def _has_run(job: JobRecord) -> bool:
    if job.reused_from:  # the earlier run reported the failures
        return False
    judged = job.counts.passed + job.counts.failed + job.counts.error
    over = job.outcome not in (None, Outcome.NOT_RUN)
    return bool(judged) or (over and job.kind != "suite")


def _explained(group: FailureGroup, by: Sequence[tuple[tuple[str, ...], str]]) -> FailureGroup:
    return replace(
        group,
        known_issues=tuple(sorted({issue for issues, _ in by for issue in issues})),
        quarantines=tuple(sorted({quarantine for _, quarantine in by} - {""})),
        tolerated=sum(1 for issues, quarantine in by if issues or quarantine),
    )
