"""Freezes evidence: every input of a verdict, in one immutable value."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce

from orchestrator.application.baselines import GatePlatforms, baselines, with_changes
from orchestrator.application.context import Context
from orchestrator.application.explain_failures import by_number, scopes
from orchestrator.application.freeze_cell import (
    EarlierResults,
    freeze_cell,
    quarantine_id,
    subject_of,
)
from orchestrator.application.gather_evidence import (
    CountedCell,
    GatheredCell,
    GatheredRun,
    counted_cells,
    gather,
    is_of_one_of,
    is_of_one_subject,
    is_of_the_same,
    with_related_runs,
)
from orchestrator.application.triage_failures import successors_of_issues, tests_ran
from orchestrator.domain.cell import RunState
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.gate.gate_documents import digest_of, snapshot_document
from orchestrator.domain.gate.policy import EvidenceRule, GatePolicy, duration
from orchestrator.domain.gate.reruns import failed_before, failed_elsewhere, merge_reruns
from orchestrator.domain.gate.rules.performance import MEASURED
from orchestrator.domain.gate.snapshot import (
    CellEvidence,
    FailedTest,
    JobEvidence,
    Quarantine,
    Snapshot,
    ViolatedBefore,
)
from orchestrator.domain.gate.tolerance import failing_results, known_issues
from orchestrator.domain.gate.verdict import RuleOutcome
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.node_ids import normal_nodeid
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.store.errors import DamagedError, UnknownIdError
from orchestrator.store.runs import RunsAsked

_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_PASSED = (TestOutcome.PASSED, TestOutcome.XPASSED)
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_NOTHING = EarlierResults(0, None, frozenset())


def with_failed_before(
    cells: Sequence[CellEvidence],
    taken: Sequence[GatheredRun],
    quarantines: Sequence[Quarantine],
    gate_platforms: GatePlatforms,
) -> tuple[CellEvidence, ...]:
    """Return the cells with failures from those of these runs that tested the same subject.

    Args:
        cells: The frozen cells.
        taken: All related runs, oldest first, including those of the cells.
        quarantines: The product's.
        gate_platforms: The gate's platforms.
    """
    history = _RunCells.from_runs(taken, quarantines, gate_platforms)
    return tuple(
        _with_retried(cell, history) if cell.ingested else _with_history(cell, history)
        for cell in cells
    )


def _with_retried(cell: CellEvidence, history: _RunCells) -> CellEvidence:
    """Return an ingested cell with its own retried tests; other runs are not compared with it."""
    jobs = (
        replace(job, failed_before=tuple(history.retried(job.run or cell.run, cell, job.id)))
        for job in cell.jobs
    )
    return replace(cell, jobs=tuple(jobs))


def _with_history(cell: CellEvidence, history: _RunCells) -> CellEvidence:
    is_had = cell.outcome is not Outcome.NOT_AVAILABLE
    own = {job.id for job in cell.jobs if is_had}
    then = [*history.with_other_payloads(cell, cell.run), *history.of_the_same(cell, cell.run)]
    failed = {
        job.id: one.run
        for one in sorted(then, key=lambda one: one.run)
        for job in one.jobs
        if job.id not in own and any(failing_results(one, job, blocking=True))
    }
    return replace(
        cell,
        jobs=tuple(
            _with_failures_before(cell, job, history) if job.outcome in _FINAL else job
            for job in cell.jobs
        ),
        jobs_failed=failed,
    )


def _with_failures_before(cell: CellEvidence, job: JobEvidence, history: _RunCells) -> JobEvidence:
    run = job.run or cell.run
    passing = history.passing(run, cell.id, job.id)
    before = failed_before(cell, job, history.of_the_same(cell, run), passing=passing)
    others = history.with_other_payloads(cell, run)
    elsewhere = failed_elsewhere(cell, job, others, passing=passing)
    known = {one.nodeid for one in before}
    gone = [one for one in elsewhere.gone if one.nodeid not in known]
    retried = history.retried(run, cell, job.id)
    return replace(
        job,
        failed_before=(*retried, *before, *gone),
        passed_after=elsewhere.passed_after,
    )


@dataclass(frozen=True, slots=True)
class _RunCells:
    """All cells of some runs."""

    runs: Mapping[str, GatheredRun]
    """Runs by id, oldest first."""
    cells: Mapping[tuple[str, str], CellEvidence]
    """Cells by run and name, without ingested ones."""
    quarantines: Sequence[Quarantine]
    gate_platforms: GatePlatforms

    @classmethod
    def from_runs(
        cls,
        taken: Sequence[GatheredRun],
        quarantines: Sequence[Quarantine],
        gate_platforms: GatePlatforms,
    ) -> _RunCells:
        cells = {
            (one.id, cell.id): freeze_cell(GatheredCell(one, cell), _NOTHING, quarantines)
            for one in taken
            for cell in one.evidence.record.cells
            if cell.ingested is None
        }
        return cls({one.id: one for one in taken}, cells, quarantines, gate_platforms)

    def of_the_same(self, cell: CellEvidence, run: str) -> list[CellEvidence]:
        """Return the cell in other runs with the payload and the subject of `run`."""
        same = (one for one in self.runs.values() if is_of_the_same(self.runs[run], one))
        return self._there(cell, run, same)

    def with_other_payloads(self, cell: CellEvidence, run: str) -> list[CellEvidence]:
        """Return the cell in runs of the subject of `run` with another payload."""
        mine = self.runs[run]
        same = (one for one in self.runs.values() if is_of_one_subject(mine.spec, one.spec))
        return self._there(cell, run, (one for one in same if not is_of_the_same(mine, one)))

    def _there(
        self, cell: CellEvidence, run: str, runs: Iterable[GatheredRun]
    ) -> list[CellEvidence]:
        """Return the cell in these runs; where a run lacks it, all of its platform's cells.

        In `run` itself, these are only cells of other names on the cell's machine.

        Cell names depend on the environments that a matrix lists. A platform may have had another
        id: one that the policy does not name, on the same kind of machine, with the same packages
        or with an id that the policy named before, or that it required before.
        """
        found: list[CellEvidence] = []
        for one in runs:
            there = [self.cells[key] for key in self.cells if key[0] == one.id]
            if one.id == run:
                found += [o for o in there if o.id != cell.id and self._is_renamed(o, cell)]
                continue
            same = [other for other in there if other.id == cell.id]
            here = [other for other in there if other.platform == cell.platform]
            found += same or here or [o for o in there if self._is_renamed(o, cell)]
        return found

    def _is_renamed(self, other: CellEvidence, cell: CellEvidence) -> bool:
        was_judged = other.platform in self.gate_platforms.gone
        if (other.platform in self.gate_platforms.named and not was_judged) or not cell.machines:
            return False
        is_alike = (other.environment, set(other.machines)) == (
            cell.environment,
            set(cell.machines),
        )
        is_same = bool(cell.fingerprint) and other.fingerprint == cell.fingerprint
        return is_alike and (is_same or was_judged)

    def passing(self, run: str, cell: str, job: str) -> frozenset[str]:
        """Return passing tests of a job, as `normal_nodeid`."""
        return frozenset(normal_nodeid(test.nodeid) for test in self._passed(run, cell, job))

    def retried(self, run: str, cell: CellEvidence, job: str) -> list[FailedTest]:
        """Return tests of a job that failed, and passed when the suite itself reran them."""
        return [
            FailedTest(
                job=job,
                nodeid=test.nodeid,
                signature="",
                message="it failed, and passed when its suite ran it again",
                quarantine=quarantine_id(self.quarantines, test.nodeid, cell.platform),
                run=run,
            )
            for test in self._passed(run, cell.id, job)
            if any(outcome in _BAD for outcome in test.earlier)
        ]

    def _passed(self, run: str, cell: str, job: str) -> list[TestFact]:
        tests = self.runs[run].evidence.tests.get(cell, ())
        return [test for test in tests if test.job == job and test.outcome in _PASSED]


_LOOKS_BACK = duration(EvidenceRule().max_age)
"""Minimum time that a failure counts against its subject, even beyond the policy's `max_age`."""


def freeze_evidence(context: Context, policy: GatePolicy, runs: Sequence[str]) -> Snapshot:
    """Freeze the evidence of these runs; without any, of the product's newest finished one.

    A later run's cell of a platform replaces an earlier one's; a rerun of some jobs completes
    it. Raises RunMissingError, WrongProductError.
    """
    at = context.clock.now()
    taken = gather(context, policy.metadata.product, runs, at=at)
    return freeze(context, policy, taken, now=at)


def freeze(
    context: Context, policy: GatePolicy, taken: Sequence[GatheredRun], *, now: datetime
) -> Snapshot:
    """Freeze gathered runs, for a verdict at that time."""
    product, gate = policy.metadata.product, policy.metadata.name
    gate_platforms = GatePlatforms.read(context, policy)
    quarantines = tuple(context.stores.quarantines.list(product=product))
    counted = counted_cells(taken)
    then = baselines(context, policy, gate_platforms, counted)
    cells = tuple(
        _frozen(one, known.before, quarantines) for one, known in zip(counted, then, strict=True)
    )
    cells = with_changes(context, product, cells, taken, then)
    counting = {part.taken.id for one in counted for part in one.parts}
    green = context.stores.gates.last_passed(gate, without=counting) if counting else None
    max_age = max(duration(policy.spec.evidence.max_age), _LOOKS_BACK)
    others = with_related_runs(context, taken, now=now, max_age=max_age)
    frozen = Snapshot(
        product=product,
        subject=_agreed(cells),
        runs=tuple(one.id for one in taken),
        cells=with_failed_before(with_test_sets(cells, taken), others, quarantines, gate_platforms),
        known_issues=_known_issues(context, product),
        quarantines=quarantines,
        cost_usd=sum((one.evidence.record.cost_usd or Decimal(0) for one in taken), Decimal(0)),
        unpriced=_unpriced(taken),
        last_green=green.runs[-1] if green and green.runs else "",
        elsewhere=_elsewhere(context, policy, taken),
        violated_before=_violated_before(context, gate, taken, since=now - max_age),
    )
    frozen = replace(frozen, issue_tests=_issue_tests(context, policy, frozen, taken))
    return _with_decisions(context, gate, frozen)


def _unpriced(taken: Sequence[GatheredRun]) -> tuple[str, ...]:
    """Return the ids of the cells whose cost is not known, or not all of it."""
    cells = (cell for one in taken for cell in one.evidence.record.cells)
    return tuple(sorted({cell.id for cell in cells if cell.cost.is_partly_unknown}))


def _issue_tests(
    context: Context, policy: GatePolicy, frozen: Snapshot, taken: Sequence[GatheredRun]
) -> Mapping[str, bool]:
    """Return by known issue whether a test that failed so before ran in these runs."""
    records = [one.evidence.record for one in taken]
    ran = {record.run.id: scopes(record.run, record.cells) for record in records}
    issues = known_issues(policy, frozen)
    stores = context.stores
    if not issues:
        return {}
    successors_of = successors_of_issues(stores, issues)
    return tests_ran(stores, frozen.product, issues, by_number(stores, ran), successors_of)


_VERDICTS = 50
"""Newest verdicts of the gate in which violated rules are looked for."""


def _violated_before(
    context: Context, gate: str, taken: Sequence[GatheredRun], *, since: datetime
) -> tuple[ViolatedBefore, ...]:
    """Return the rules that the gate found violated in other runs of the subject or payload.

    Tests and jobs that failed there are added by `with_failed_before`.
    """
    here, found = {one.id for one in taken}, dict[str, ViolatedBefore]()
    for stored in context.stores.gates.verdicts(gate=gate, limit=_VERDICTS):
        if stored.verdict.at < since or here.intersection(stored.runs):
            continue
        violated = [
            rule
            for rule in stored.verdict.rules
            if rule.kind in MEASURED and rule.blocking and rule.outcome is RuleOutcome.VIOLATED
        ]
        if violated and any(is_of_one_of(context, run, taken) for run in stored.runs):
            for rule in violated:
                before = ViolatedBefore(
                    rule=rule.id, verdict=stored.id, runs=stored.runs, sentence=rule.sentence
                )
                found.setdefault(rule.id, before)
    return tuple(found[rule] for rule in sorted(found))


_LOOKED_THROUGH = 50
"""Maximum earlier runs in which a missing platform is looked for."""


def _elsewhere(
    context: Context, policy: GatePolicy, taken: Sequence[GatheredRun]
) -> Mapping[str, str]:
    """Return the platforms that these runs lack, with the subject's newest run that has each."""
    here = {cell.platform.id for one in taken for cell in one.evidence.record.cells}
    missing = {rule.id for rule in policy.spec.platforms} - here
    if not taken or not missing:
        return {}
    mine, runs = taken[-1].spec, context.stores.runs
    filters = RunsAsked(subject=mine.matrix.subject.name, state=RunState.FINISHED)
    found: dict[str, str] = {}
    for run in runs.page(limit=_LOOKED_THROUGH, before=None, filters=filters)[0]:
        try:
            spec = runs.spec(run.id)
        except (DamagedError, UnknownIdError):
            continue  # only a hint: the verdict does not depend on these runs
        is_alike = spec.matrix.subject == mine.matrix.subject or is_of_one_subject(mine, spec)
        if is_alike and spec.manifest.name == policy.metadata.product:
            for platform in spec.matrix.platforms:
                if platform.id in missing:
                    found.setdefault(platform.id, run.id)
        if found.keys() == missing:
            break
    return found


def _frozen(
    one: CountedCell, before: EarlierResults, quarantines: Sequence[Quarantine]
) -> CellEvidence:
    cell = reduce(merge_reruns, (freeze_cell(part, before, quarantines) for part in one.parts))
    others = [subject_of(part) for part in one.replaced]
    told = [subject for n, subject in enumerate(others) if subject not in others[:n]]
    return replace(cell, stands_for=tuple(other for other in told if other != cell.subject))


def evidence_digest(snapshot: Snapshot) -> str:
    """Return the digest of a snapshot without waivers, approvals, reviews and later runs."""
    told = replace(snapshot, waivers=(), approvals=(), reviews=(), elsewhere={}, issue_tests=None)
    return digest_of(snapshot_document(told))


def _with_decisions(context: Context, gate: str, frozen: Snapshot) -> Snapshot:
    """Add waivers and approvals of this evidence, and reviews of its payloads."""
    digest = evidence_digest(frozen)
    waivers = (one.waiver for one in context.stores.gates.waivers(gate=gate))
    payloads = sorted({cell.subject.get("payload_sha256", "") for cell in frozen.cells} - {""})
    return replace(
        frozen,
        waivers=tuple(one for one in waivers if one.evidence in ("", digest)),
        approvals=tuple(context.stores.gates.approvals(gate, evidence=digest)),
        reviews=tuple(context.stores.gates.reviews(payloads)),
    )


def _agreed(cells: Sequence[CellEvidence]) -> Mapping[str, str]:
    """Return the subject's facts on which all cells agree."""
    if not cells:
        return {}
    shared = set(cells[0].subject.items()).intersection(*(c.subject.items() for c in cells[1:]))
    return dict(sorted(shared))


def _known_issues(context: Context, product: str) -> tuple[KnownIssue, ...]:
    """Return the product's known issues, with the present signatures of their failures."""
    issues = context.stores.known_issues.list(product=product)
    successors_of = successors_of_issues(context.stores, issues)
    return tuple(_renewed(issue, successors_of) for issue in issues)


def _renewed(issue: KnownIssue, successors_of: Mapping[str, frozenset[str]]) -> KnownIssue:
    found = successors_of.get(issue.match.signature, frozenset())
    if len(found) != 1:
        return issue  # a person must split an issue whose signature became several
    return replace(issue, match=replace(issue.match, signature=next(iter(found))))


_Tests = Counter[str]
"""Node ids as `normal_nodeid`; several tests may share one."""


def with_test_sets(
    cells: Sequence[CellEvidence], taken: Iterable[GatheredRun]
) -> tuple[CellEvidence, ...]:
    """Return the cells, with the digest of each job's tests and the tests that only others have."""
    known = _collected(taken)
    sets = {
        (cell.id, cell.run, job.id): _of(known, cell, job) for cell in cells for job in cell.jobs
    }
    everywhere: dict[str, _Tests] = {}
    for (_, _, job_id), tests in sets.items():
        everywhere[job_id] = everywhere.get(job_id, Counter()) | tests
    return tuple(
        replace(
            cell,
            jobs=tuple(
                _with_test_set(job, sets[cell.id, cell.run, job.id], everywhere[job.id])
                for job in cell.jobs
            ),
        )
        for cell in cells
    )


def _collected(taken: Iterable[GatheredRun]) -> Mapping[tuple[str, str, str], _Tests]:
    """Return collected tests by run, cell and job."""
    found: dict[tuple[str, str, str], _Tests] = {}
    for one in taken:
        for cell, tests in one.evidence.tests.items():
            for test in tests:
                mine = found.setdefault((one.id, cell, test.job), Counter())
                mine[normal_nodeid(test.nodeid)] += 1
    return found


def _of(
    known: Mapping[tuple[str, str, str], _Tests], cell: CellEvidence, job: JobEvidence
) -> _Tests:
    """Return the job's tests; empty if some of the counted tests have no name."""
    tests = known.get((job.run or cell.run, cell.id, job.id), Counter())
    return tests if tests.total() == job.counts.collected else Counter()


def _with_test_set(job: JobEvidence, tests: _Tests, everywhere: _Tests) -> JobEvidence:
    if not tests:
        return job
    digest = hashlib.sha256("\n".join(sorted(tests.elements())).encode()).hexdigest()
    return replace(
        job, tests_digest=digest, tests_lacking=tuple(sorted((everywhere - tests).elements()))
    )
