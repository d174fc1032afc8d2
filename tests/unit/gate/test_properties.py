"""What holds of every policy and all evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from orchestrator.domain.gate.gate_documents import (
    canonical,
    policy_document,
    read_policy_document,
    read_snapshot,
    read_verdict,
    snapshot_document,
    verdict_document,
)
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence, Snapshot
from orchestrator.domain.gate.verdict import Decision, Verdict
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.any_policy import PLATFORMS
from tests.unit.gate.any_snapshot import cases, cells, failed_tests
from tests.unit.gate.builders import NOW, evidence_digest, judge

TRIED = settings(max_examples=30)
Case = tuple[GatePolicy, Snapshot]
Change = Callable[[CellEvidence], Iterator[CellEvidence]]


def verdict_of(rules: GatePolicy, evidence: Snapshot, digest: str) -> Verdict:
    """As it would be of evidence to which people said the same."""
    return judge(rules, evidence, digest=digest)


def is_no_better(after: Decision, before: Decision) -> bool:
    """Whoever loses what spoke against a release knows less; they never get nearer to a pass."""
    return after.rank >= before.rank or after is Decision.INCONCLUSIVE


def changed(evidence: Snapshot, change: Change) -> Iterator[Snapshot]:
    """The snapshot with one of its cells changed, in every way."""
    for index, one in enumerate(evidence.cells):
        for other in change(one):
            held = (*evidence.cells[:index], other, *evidence.cells[index + 1 :])
            yield replace(evidence, cells=held)


def with_job(cell: CellEvidence, index: int, job: JobEvidence) -> CellEvidence:
    held = (*cell.jobs[:index], job, *cell.jobs[index + 1 :])
    return replace(cell, jobs=held, counts=sum((one.counts for one in held), Counts()))


def losing_a_job(cell: CellEvidence) -> Iterator[CellEvidence]:
    for index, job in enumerate(cell.jobs):
        nothing = JobEvidence(id=job.id, kind=job.kind, outcome=Outcome.NOT_RUN, reason="agent")
        yield with_job(cell, index, nothing)
        yield with_job(cell, index, replace(nothing, outcome=None))


def losing_a_test(cell: CellEvidence) -> Iterator[CellEvidence]:
    """A test that had reported is missing."""
    for index, job in enumerate(cell.jobs):
        counts = job.counts
        if counts.passed:
            less = replace(counts, passed=counts.passed - 1, missing=counts.missing + 1)
            bad = replace(job, counts=less, outcome=Outcome.FAILED, reason="missing")
            yield replace(with_job(cell, index, bad), outcome=Outcome.FAILED)
        for test in job.failed:
            less = replace(counts, failed=counts.failed - 1, missing=counts.missing + 1)
            left = tuple(other for other in job.failed if other is not test)
            yield with_job(cell, index, replace(job, counts=less, failed=left))


def losing_a_record(cell: CellEvidence) -> Iterator[CellEvidence]:
    """A failure is counted, and nobody knows which."""
    for index, job in enumerate(cell.jobs):
        for test in job.failed:
            left = tuple(other for other in job.failed if other is not test)
            yield with_job(cell, index, replace(job, failed=left))


def losing_skip_reasons(cell: CellEvidence) -> Iterator[CellEvidence]:
    for index, job in enumerate(cell.jobs):
        yield with_job(cell, index, replace(job, skips={}))


def losing_measurements(cell: CellEvidence) -> Iterator[CellEvidence]:
    yield replace(cell, pairs=())


def losing_trust(cell: CellEvidence) -> Iterator[CellEvidence]:
    yield replace(cell, attested=False)
    yield replace(cell, simulated=True)
    yield replace(cell, mismatch="found another")
    yield replace(cell, ended_at=None)
    yield replace(cell, ended_at=NOW - timedelta(days=9))
    yield replace(cell, instance_type="")
    yield replace(cell, subject={})
    yield replace(cell, green_streak=0)
    yield replace(cell, packages={})
    yield replace(cell, state="running", outcome=None)


def losing_reruns(cell: CellEvidence) -> Iterator[CellEvidence]:
    for index, job in enumerate(cell.jobs):
        left = tuple(replace(test, reruns=()) for test in job.failed)
        yield with_job(cell, index, replace(job, failed=left))


def losing_a_platform(evidence: Snapshot) -> Iterator[Snapshot]:
    for one in evidence.cells:
        yield replace(evidence, cells=tuple(c for c in evidence.cells if c is not one))


LOSSES = (
    losing_a_job, losing_a_test, losing_a_record, losing_skip_reasons, losing_measurements,
    losing_trust, losing_reruns,
)  # fmt: skip


@TRIED
@given(case=cases())
def test_lost_evidence_never_helps(case: Case):
    rules, evidence = case
    digest = evidence_digest(evidence)
    before = verdict_of(rules, evidence, digest).decision
    for left in losing_a_platform(evidence):
        assert is_no_better(verdict_of(rules, left, digest).decision, before)
    for loss in LOSSES:
        for left in changed(evidence, loss):
            assert is_no_better(verdict_of(rules, left, digest).decision, before), loss


@TRIED
@given(cases(), st.integers(0, 40 * 24))
def test_trust_that_is_lost_and_time_never_improve_the_rank(case: Case, hours: int):
    """Strictly: what failed stays failed, whoever may have produced it."""
    rules, evidence = case
    digest = evidence_digest(evidence)
    before = verdict_of(rules, evidence, digest).decision.rank
    for doubt in (
        {"attested": False},
        {"simulated": True},
        {"mismatch": "found another"},
        {"ended_at": NOW - timedelta(days=9)},
    ):
        held = tuple(replace(one, **doubt) for one in evidence.cells)
        left = verdict_of(rules, replace(evidence, cells=held), digest)
        assert left.decision.rank >= before, doubt
    for index in range(len(evidence.approvals)):
        yes = (*evidence.approvals[:index], *evidence.approvals[index + 1 :])
        after = verdict_of(rules, replace(evidence, approvals=yes), digest)
        assert after.decision.rank >= before, "a yes that is taken back"
    for late_rules, late in (*expired_in_policy(rules, evidence), *expired(rules, evidence)):
        assert verdict_of(late_rules, late, digest).decision.rank >= before
    then = judge(rules, evidence, NOW + timedelta(hours=hours), digest=digest)
    assert then.decision.rank >= before


def expired_in_policy(
    rules: GatePolicy, evidence: Snapshot
) -> Iterator[tuple[GatePolicy, Snapshot]]:
    for key in ("known_issues", "exceptions"):
        held = getattr(rules.spec, key)
        for index, one in enumerate(held):
            over = replace(one, expires=date(2026, 1, 19))
            spec = replace(rules.spec, **{key: (*held[:index], over, *held[index + 1 :])})
            yield replace(rules, spec=spec), evidence


def expired(rules: GatePolicy, evidence: Snapshot) -> Iterator[tuple[GatePolicy, Snapshot]]:
    for key in ("known_issues", "quarantines", "waivers"):
        held = getattr(evidence, key)
        for index, one in enumerate(held):
            end = date(2026, 1, 19) if key == "known_issues" else NOW
            over = replace(one, expires=end)
            rest = (*held[:index], over, *held[index + 1 :])
            yield rules, replace(evidence, **{key: rest})


@TRIED
@given(cases(), st.data())
def test_a_failure_more_never_improves_the_rank(case: Case, data: st.DataObject):
    rules, evidence = case
    digest = evidence_digest(evidence)
    before = verdict_of(rules, evidence, digest).decision.rank
    one = data.draw(st.sampled_from(evidence.cells))
    index = data.draw(st.integers(0, len(one.jobs) - 1))
    job = one.jobs[index]
    new = data.draw(failed_tests(job.id, data.draw(st.sampled_from(["a.py::z", "0.py::a"]))))
    counts = replace(job.counts, failed=job.counts.failed + 1, passed=max(job.counts.passed - 1, 0))
    # A job that did not end, or not in time, is not better for a failure that somebody tolerates.
    outcome = Outcome.FAILED if job.outcome is Outcome.PASSED else job.outcome
    failing = replace(job, counts=counts, failed=(*job.failed, new), outcome=outcome)
    worse = with_job(one, index, failing)
    if worse.outcome is Outcome.PASSED:
        worse = replace(worse, outcome=Outcome.FAILED)
    held = tuple(worse if other is one else other for other in evidence.cells)
    after = verdict_of(rules, replace(evidence, cells=held), digest)
    assert after.decision.rank >= before


@TRIED
@given(cases(), st.randoms(use_true_random=False))
def test_order_changes_no_byte(case: Case, random: object):
    rules, evidence = case

    def shuffled(items: tuple[object, ...]) -> tuple[object, ...]:
        listed = list(items)
        random.shuffle(listed)  # type: ignore[attr-defined]
        return tuple(listed)

    digest = evidence_digest(evidence)
    mixed = replace(
        evidence,
        cells=shuffled(
            tuple(
                replace(
                    one,
                    jobs=shuffled(
                        tuple(replace(job, failed=shuffled(job.failed)) for job in one.jobs)
                    ),
                )
                for one in evidence.cells
            )
        ),
        quarantines=shuffled(evidence.quarantines),
        waivers=shuffled(evidence.waivers),
        approvals=shuffled(evidence.approvals),
        reviews=shuffled(evidence.reviews),
        known_issues=shuffled(evidence.known_issues),
    )
    first = canonical(verdict_document(verdict_of(rules, evidence, digest)))
    assert canonical(verdict_document(verdict_of(rules, evidence, digest))) == first
    assert canonical(verdict_document(verdict_of(rules, mixed, digest))) == first


@TRIED
@given(cases(), st.data())
def test_what_only_informs_never_matters(case: Case, data: st.DataObject):
    rules, evidence = case
    substitutes = {
        rule.when_unavailable.substitute.platform
        for rule in rules.spec.platforms
        if rule.when_unavailable.substitute
    }
    blocking = {rule.id for rule in rules.spec.platforms if rule.level == "blocking"}
    free = sorted(set(PLATFORMS) - blocking - substitutes)
    digest = evidence_digest(evidence)
    before = verdict_of(rules, evidence, digest)
    for name in free:
        others = tuple(one for one in evidence.cells if one.platform != name)
        for held in (others, (*others, data.draw(cells(name)))):
            after = verdict_of(rules, replace(evidence, cells=held), digest)
            assert after.decision is before.decision


@TRIED
@given(cases())
def test_doubtful_evidence_never_passes(case: Case):
    rules, evidence = case
    digest = evidence_digest(evidence)
    required = replace(rules.spec, evidence=replace(rules.spec.evidence, attestation="required"))
    for uncertain, policy in (
        ({"simulated": True}, rules),
        ({"ended_at": NOW - timedelta(hours=37)}, rules),
        ({"mismatch": "found another"}, rules),
        ({"attested": False, "ingested": False}, rules),
        ({"attested": False, "ingested": True}, replace(rules, spec=required)),
        ({"outcome": None, "state": "running"}, rules),
    ):
        held = tuple(replace(one, **uncertain) for one in evidence.cells)
        after = verdict_of(policy, replace(evidence, cells=held), digest)
        assert after.decision in (Decision.FAIL, Decision.INCONCLUSIVE)
    nothing = replace(evidence, cells=(), runs=(), cost_usd=Decimal(0))
    assert judge(rules, nothing, digest="").decision is Decision.INCONCLUSIVE


@TRIED
@given(cases(), st.data())
def test_one_doubtful_blocking_cell_is_enough(case: Case, data: st.DataObject):
    rules, evidence = case
    blocking = {rule.id for rule in rules.spec.platforms if rule.level == "blocking"}
    mine = [one for one in evidence.cells if one.platform in blocking]
    mine = [one for one in mine if one.outcome is not Outcome.NOT_AVAILABLE]
    if mine:
        one = data.draw(st.sampled_from(mine))
        fake = replace(one, simulated=True)
        held = tuple(fake if other is one else other for other in evidence.cells)
        after = verdict_of(rules, replace(evidence, cells=held), evidence_digest(evidence))
        assert after.decision in (Decision.FAIL, Decision.INCONCLUSIVE)


@TRIED
@given(cases())
def test_documents_come_back_as_they_were_and_every_verdict_says_why(case: Case):
    rules, evidence = case
    verdict = judge(rules, evidence)
    for value, tell, read in (
        (evidence, snapshot_document, read_snapshot),
        (verdict, verdict_document, read_verdict),
        (rules, policy_document, read_policy_document),
    ):
        written = canonical(tell(value))
        assert read(json.loads(written)) == value
        assert canonical(tell(read(json.loads(written)))) == written
    ids = [result.id for result in verdict.rules]
    assert len(set(ids)) == len(ids)
    assert all(result.sentence.endswith((".", ")")) for result in verdict.rules)
    assert verdict.summary.startswith(verdict.decision.value)


@pytest.mark.parametrize("decision", Decision)
def test_every_decision_occurs(decision: Decision):
    """Else the properties would say nothing."""
    first = settings(max_examples=300, phases=(Phase.generate,))
    find(cases(), lambda case: judge(*case).decision is decision, settings=first)
