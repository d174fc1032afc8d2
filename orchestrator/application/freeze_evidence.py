"""Freeze evidence: everything that a verdict is made from, in one value that never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce

from orchestrator.application.context import Context
from orchestrator.application.freeze_cell import Before, freeze_cell, subject_of
from orchestrator.application.freeze_changes import BaselineEvidence, with_changes
from orchestrator.application.freeze_failed_before import with_failed_before
from orchestrator.application.freeze_test_sets import with_test_sets
from orchestrator.application.gather_evidence import (
    CountedCell,
    GatheredCell,
    GatheredRun,
    counted_cells,
    gather,
    with_related_runs,
)
from orchestrator.application.reused_results import told_tests
from orchestrator.domain.gate.gate_documents import digest_of, snapshot_document
from orchestrator.domain.gate.policy import EvidenceRule, GatePolicy
from orchestrator.domain.gate.quantities import duration
from orchestrator.domain.gate.rerun_merge import merge_reruns
from orchestrator.domain.gate.snapshot import CellEvidence, Quarantine, Snapshot
from orchestrator.domain.identity import normal_nodeid
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.passing_runs import LastGreen

_RAN = (
    TestOutcome.PASSED,
    TestOutcome.FAILED,
    TestOutcome.ERROR,
    TestOutcome.XFAILED,
    TestOutcome.XPASSED,
)


_LOOKS_BACK = duration(EvidenceRule().max_age)
"""A failure counts against its subject so long at least: believing less evidence forgets none."""


def freeze_evidence(context: Context, policy: GatePolicy, runs: Sequence[str]) -> Snapshot:
    """What the gate looks at in these runs; in the product's newest finished one where none is.

    A later run's cell of a platform stands for an earlier one's; a rerun of some jobs completes
    it. Raises RunMissingError, WrongProductError.
    """
    at = context.clock.now()
    taken = gather(context, policy.metadata.product, runs, at=at)
    return freeze(context, policy, taken, now=at)


def freeze(
    context: Context, policy: GatePolicy, taken: Sequence[GatheredRun], *, now: datetime
) -> Snapshot:
    """The same of runs that are gathered already, for a verdict of that time."""
    product, gate = policy.metadata.product, policy.metadata.name
    oldest = min((one.id for one in taken), default="")
    green = context.stores.gates.last_passed(gate, before_run=oldest) if oldest else None
    passed = tuple(green.runs) if green else ()
    seen = _signatures(context, passed)
    quarantines = tuple(context.stores.quarantines.list(product=product))
    stood = [(one, _past(context, policy, one.parts, oldest)) for one in counted_cells(taken)]
    cells = tuple(
        _frozen(one, _compared(context, one.parts, past, seen, passed), quarantines)
        for one, past in stood
    )
    green_runs = {one.parts[0].cell.platform.id: past.run for one, past in stood}
    cells = with_changes(context, product, cells, taken, BaselineEvidence(passed, green_runs))
    max_age = max(duration(policy.spec.evidence.max_age), _LOOKS_BACK)
    others = with_related_runs(context, taken, now=now, max_age=max_age)
    frozen = Snapshot(
        product=product,
        subject=_agreed(cells),
        runs=tuple(one.id for one in taken),
        cells=with_failed_before(with_test_sets(cells, taken), others, quarantines),
        known_issues=_known_issues(context, product),
        quarantines=quarantines,
        cost_usd=sum((one.evidence.record.cost_usd for one in taken), Decimal(0)),
        last_green=green.runs[-1] if green and green.runs else "",
    )
    return _with_decisions(context, gate, frozen)


def _frozen(one: CountedCell, before: Before, quarantines: Sequence[Quarantine]) -> CellEvidence:
    cell = reduce(merge_reruns, (freeze_cell(part, before, quarantines) for part in one.parts))
    others = [subject_of(part) for part in one.replaced]
    told = [subject for n, subject in enumerate(others) if subject not in others[:n]]
    return replace(cell, stands_for=tuple(other for other in told if other != cell.subject))


def evidence_digest(snapshot: Snapshot) -> str:
    """The digest that waivers and approvals are given for: without anything that people said."""
    return digest_of(snapshot_document(replace(snapshot, waivers=(), approvals=(), reviews=())))


def _with_decisions(context: Context, gate: str, frozen: Snapshot) -> Snapshot:
    """What people said to this evidence, to whatever the gate looks at next, and of payloads."""
    digest = evidence_digest(frozen)
    waivers = (one.waiver for one in context.stores.gates.waivers(gate=gate))
    payloads = sorted({cell.subject.get("payload_sha256", "") for cell in frozen.cells} - {""})
    return replace(
        frozen,
        waivers=tuple(one for one in waivers if one.evidence in ("", digest)),
        approvals=tuple(context.stores.gates.approvals(gate, evidence=digest)),
        reviews=tuple(context.stores.gates.reviews(payloads)),
    )


def _signatures(context: Context, runs: Sequence[str]) -> frozenset[str]:
    failures = (one for run in runs for one in context.stores.failures.of_run(run))
    return frozenset(failure.signature.id for failure in failures)


@dataclass(frozen=True, slots=True)
class _Past:
    """The platform's runs before."""

    last: LastGreen | None
    streak: int

    @property
    def run(self) -> str:
        """The last green one's id; empty where there is none."""
        return self.last.run_id if self.last else ""


def _past(
    context: Context, policy: GatePolicy, parts: Sequence[GatheredCell], oldest: str
) -> _Past:
    """What the cell's platform did before; unattested runs only where the policy takes them."""
    gates, product = context.stores.gates, policy.metadata.product
    platform = parts[0].cell.platform.id
    ingested = policy.spec.evidence.attestation == "unattested_allowed"
    return _Past(
        gates.last_green(product, platform, before_run=oldest, ingested=ingested),
        gates.green_streak(product, platform, before_run=oldest, ingested=ingested),
    )


def _compared(
    context: Context,
    parts: Sequence[GatheredCell],
    past: _Past,
    seen: frozenset[str],
    passed: Sequence[str],
) -> Before:
    """What the cell is compared with."""
    last = past.last
    ran: Mapping[tuple[str, str], bool] = {}
    if any(job.counts.skipped or job.counts.xfailed for part in parts for job in part.cell.jobs):
        ran = _ran(context, parts[0].cell.id, {*passed, *([last.run_id] if last else [])})
    jobs = [job for part in parts for job in part.cell.jobs]
    left_out = any(job.test_set.modules or job.test_set.ignored for job in jobs)
    tests = context.stores.results.final_tests(last.cell_id) if last and left_out else {}
    return Before(past.streak, last.collected if last else None, seen, ran, tests)


def _ran(context: Context, name: str, runs: Iterable[str]) -> Mapping[tuple[str, str], bool]:
    """Jobs and tests that ran in the cells of that name, and whether they passed in any."""
    stores = context.stores
    cells = [one.id for run in runs for one in stores.cells.of_run(run) if one.name == name]
    tests = (test for cell in cells for test in told_tests(stores, cell))
    found: dict[tuple[str, str], bool] = {}
    for test in tests:
        if test.outcome in _RAN:
            key = (test.job, normal_nodeid(test.nodeid))
            found[key] = found.get(key, False) or test.outcome is TestOutcome.PASSED
    return found


def _agreed(cells: Sequence[CellEvidence]) -> Mapping[str, str]:
    """What all cells say of the subject."""
    if not cells:
        return {}
    shared = set(cells[0].subject.items()).intersection(*(c.subject.items() for c in cells[1:]))
    return dict(sorted(shared))


def _known_issues(context: Context, product: str) -> tuple[KnownIssue, ...]:
    """The product's, each with the signature that its failures have now."""
    issues = context.stores.known_issues.list(product=product)
    named = {issue.match.signature for issue in issues} - {""}
    heirs = context.stores.failures.heirs(named) if named else {}
    return tuple(_renewed(issue, heirs) for issue in issues)


def _renewed(issue: KnownIssue, heirs: Mapping[str, frozenset[str]]) -> KnownIssue:
    found = heirs.get(issue.match.signature, frozenset())
    if len(found) != 1:
        return issue  # what became several signatures is for a person to split
    return replace(issue, match=replace(issue.match, signature=next(iter(found))))
