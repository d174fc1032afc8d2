"""Any policy and any evidence that fit together: what the properties are tried on.

Names are few, so that rules, exceptions and evidence meet; half of the evidence is good, so that
all four decisions occur.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from orchestrator.domain.cell import Cause
from orchestrator.domain.collected_tests import Deselection, TestSet
from orchestrator.domain.gate.changes_of_tests import TestChanges
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.policy import (
    GateException,
    GatePolicy,
)
from orchestrator.domain.gate.snapshot import (
    Approval,
    CellEvidence,
    FailedTest,
    JobEvidence,
    Pairs,
    Quarantine,
    Snapshot,
    Waiver,
)
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.outcome import Counts, Outcome, worst
from tests.unit.gate.any_policy import (
    ALL_RULES,
    JOBS,
    PEOPLE,
    SIGNATURES,
    TESTS,
    days,
    issue_scopes,
    later,
    limits,
    matches,
    names,
    often,
    policies,
    seldom,
    some_names,
)
from tests.unit.gate.builders import NOW, PRODUCT, cell, evidence_digest, judge, snapshot

SUBJECT = cell().subject
PAYLOAD = "cd" * 32


@st.composite
def failed_tests(draw: st.DrawFn, job: str, nodeid: str) -> FailedTest:
    signature, exception = draw(st.sampled_from(SIGNATURES))
    return FailedTest(
        job=job,
        nodeid=nodeid,
        signature=signature,
        exception=exception,
        frame=draw(st.sampled_from(["", "moe.route"])),
        message=draw(st.sampled_from(["no", "beyond tolerance"])),
        reruns=draw(st.sampled_from([(), ("failed", "failed"), ("failed", "passed")])),
        is_new=draw(st.booleans()),
        quarantine=draw(st.sampled_from(["", "", "Q-1", "Q-2"])),
    )


@st.composite
def jobs(draw: st.DrawFn, name: str, *, good: bool) -> JobEvidence:
    kind = {"bench": "benchmark", "demo": "demo"}.get(name, "suite")
    reused = draw(seldom) and draw(seldom)
    told: dict[str, object] = {
        "kind": kind,
        "degraded": "fell back" if draw(seldom) and not good else "",
        "reused_from": "run-0" if reused else "",
        "at": NOW - timedelta(hours=draw(st.sampled_from([1, 1, 30]))),
    }
    if kind == "suite":
        bad = [] if good else draw(st.lists(st.sampled_from(TESTS), unique=True, max_size=2))
        tests = tuple(draw(failed_tests(name, nodeid)) for nodeid in bad)
        counts = Counts(
            passed=draw(st.integers(1, 3)),
            failed=len(tests) + (draw(st.sampled_from([0, 0, 1])) if not good else 0),
            skipped=draw(st.sampled_from([0, 0, 2])),
            missing=draw(st.sampled_from([0, 0, 1])) if not good else 0,
        )
        outcome = Outcome.FAILED if counts.bad else Outcome.PASSED
        reasons = {draw(st.sampled_from(["needs a GPU", "no network", ""])): counts.skipped}
        if draw(seldom) and not good:
            told["test_set"] = TestSet(deselected=(Deselection(by="conftest.py", count=1),))
        told |= {"counts": counts, "failed": tests, "skips": reasons if counts.skipped else {}}
        lacks = draw(seldom) and not good
        if draw(seldom) and not good:
            told |= {"failed_before": (replace(draw(failed_tests(name, "b.py::x")), run="run-0"),)}
        lost = ("a.py::lost",) if draw(seldom) and not good else ()
        told |= {"changes": TestChanges(runs=("run-0",), removed=lost)}
        told |= {"tests_digest": "ab" if lacks else "cd"}
        told |= {"tests_lacking": ("a.py::lost",) if lacks else ()}
    else:
        outcome = Outcome.PASSED if good else draw(st.sampled_from(list(Outcome)))
        checks = ("tolerance",) if outcome is Outcome.FAILED and draw(st.booleans()) else ()
        told |= {"failed_checks": checks}
        if outcome is Outcome.FAILED and not checks:
            told |= {"ending": Cause(outcome, "crashed", "died of signal 11")}
    return JobEvidence(id=name, outcome=outcome, **told)  # type: ignore[arg-type]


@st.composite
def measured(draw: st.DrawFn) -> Pairs:
    slower = draw(st.sampled_from([0.98, 1.0, 1.0, 1.1]))
    noise = draw(st.sampled_from([0.0, 0.001, 0.2]))
    number = draw(st.sampled_from([2, 5, 12]))
    subject = tuple(slower * (1 + noise * (n % 3 - 1)) for n in range(number))
    return Pairs(
        job="bench",
        metric="time",
        unit="ms",
        direction="lower",
        subject=subject,
        baseline=(1.0,) * number,
    )


@st.composite
def cells(draw: st.DrawFn, platform: str) -> CellEvidence:
    good = draw(often)
    present = draw(st.lists(st.sampled_from(JOBS), unique=True, min_size=2))
    held = tuple(draw(jobs(name, good=draw(often))) for name in sorted(present))
    outcome = worst(one.outcome for one in held if one.outcome) or Outcome.ERRORED
    if draw(seldom) and not good:
        outcome = draw(st.sampled_from([Outcome.ERRORED, Outcome.NOT_AVAILABLE, outcome]))
    if outcome is Outcome.NOT_AVAILABLE:
        held = tuple(replace(one, reused_from="") for one in held)
    ingested = draw(seldom) and draw(seldom)
    return cell(
        platform,
        *held,
        outcome=outcome,
        reason="" if outcome is Outcome.PASSED else "why",
        state="done" if good else draw(st.sampled_from(["done", "done", "running"])),
        ended_at=NOW - timedelta(hours=draw(st.sampled_from([1, 20] if good else [1, 20, 40]))),
        instance_type="g2-standard-4" if good or draw(often) else "",
        attested=not ingested and (good or draw(often)),
        mismatch="found another" if draw(seldom) and not good else "",
        simulated=draw(seldom) and not good,
        ingested=ingested,
        packages={"torch": "2.7.0"} if draw(st.booleans()) else {},
        pairs=(draw(measured()),) if "bench" in present and draw(often) else (),
        green_streak=draw(st.sampled_from([0, 1, 5])),
        baseline_collected=draw(st.sampled_from([None, 2])),
        subject={**SUBJECT, "payload_sha256": PAYLOAD},
    )


@st.composite
def reviews(draw: st.DrawFn) -> PayloadReview:
    return PayloadReview(
        id=draw(st.sampled_from(["R-1", "R-2"])),
        payload=draw(st.sampled_from([PAYLOAD, PAYLOAD, "ef" * 32])),
        level=draw(st.sampled_from(["untrusted", "reviewed", "trusted", "trusted"])),
        by=draw(st.sampled_from(PEOPLE)),
        token="t-1",
        at=NOW - timedelta(days=draw(st.integers(0, 4))),
        expires=draw(later),
    )


@st.composite
def quarantines(draw: st.DrawFn, name: str) -> Quarantine:
    return Quarantine(
        id=name,
        product=PRODUCT,
        nodeid=draw(st.sampled_from(TESTS)),
        platforms=draw(names),
        reason="flaky",
        owner="team",
        opened=NOW - timedelta(days=9),
        expires=draw(later),
    )


@st.composite
def waivers(draw: st.DrawFn, digest: str) -> Waiver:
    given_at = NOW - timedelta(days=draw(st.integers(0, 4)))
    return Waiver(
        id=draw(st.sampled_from(["W-1", "W-2"])),
        gate="release",
        rule=draw(st.sampled_from(ALL_RULES)),
        reason="tonight only",
        author=draw(st.sampled_from(PEOPLE)),
        author_token="t-1",
        approver=draw(st.sampled_from(PEOPLE)),
        approver_token="t-2",
        approved_at=given_at,
        at=given_at,
        expires=draw(later),
        evidence=draw(st.sampled_from(["", digest])),
    )


@st.composite
def stored_issues(draw: st.DrawFn) -> KnownIssue:
    return KnownIssue(
        id=draw(st.sampled_from(["KI-1", "KI-4"])),
        product=PRODUCT,
        title="stored",
        match=draw(matches),
        scope=draw(issue_scopes()),
        owner="team",
        opened=date(2025, 12, 1),
        expires=draw(days),
        max_failures=draw(limits),
        ended_at=draw(st.sampled_from([None, None, NOW - timedelta(days=1)])),
    )


@st.composite
def snapshots(draw: st.DrawFn, wanted: tuple[str, ...]) -> Snapshot:
    present = wanted if draw(often) else draw(some_names)
    frozen = snapshot(
        *(draw(cells(name)) for name in sorted(present)),
        known_issues=tuple(
            draw(st.lists(stored_issues(), max_size=1)),
        ),
        quarantines=tuple(draw(quarantines(name)) for name in ("Q-1", "Q-2")),
        reviews=tuple(draw(st.lists(reviews(), max_size=2, unique_by=lambda one: one.id))),
        cost_usd=draw(st.sampled_from([Decimal("0.50"), Decimal("1.50")])),
        last_green=draw(st.sampled_from(["run-0", "run-0", ""])),
    )
    return with_people(draw, frozen)


@st.composite
def cases(draw: st.DrawFn) -> tuple[GatePolicy, Snapshot]:
    """A policy and evidence; often with an excuse for whatever can be waived, or all but one."""
    rules = draw(policies())
    frozen = draw(snapshots(tuple(rule.id for rule in rules.spec.platforms)))
    if draw(st.booleans()):
        return rules, frozen
    wrong = [one for one in judge(rules, frozen).rules if one.blocking and one.waivable]
    failing = {one.id: one.failing for one in wrong}
    ids = [one.id for one in wrong if one.outcome in ("violated", "unknown")]
    if ids and draw(st.booleans()):
        ids.remove(draw(st.sampled_from(ids)))
    written = [
        replace(
            _exception(name, number), failing=dict(failing[name]) if draw(st.booleans()) else {}
        )
        for number, name in enumerate(ids)
        if draw(st.booleans())
    ]
    given = tuple(
        replace(_waiver(name, number), failing=failing[name])
        for number, name in enumerate(ids)
        if name not in {one.rule for one in written} or draw(seldom)
    )
    yes = tuple(
        Approval(by=name, at=NOW, evidence=evidence_digest(frozen), token=name)
        for name in ("cyd", "Dee")
    )
    spec = replace(rules.spec, exceptions=(*rules.spec.exceptions, *written))
    approvals = frozen.approvals if draw(st.booleans()) else yes
    return replace(rules, spec=spec), replace(
        frozen, waivers=(*frozen.waivers, *given), approvals=approvals
    )


def _exception(rule: str, number: int) -> GateException:
    return GateException(
        id=f"EXC-0{number}",
        rule=rule,
        reason="because",
        author=PEOPLE[number % 2],
        approved_by=("eve",),
        expires=NOW.date() + timedelta(days=number % 3),
    )


def _waiver(rule: str, number: int) -> Waiver:
    return Waiver(
        id=f"W-0{number}",
        gate="release",
        rule=rule,
        reason="tonight only",
        author=PEOPLE[number % 3],
        author_token="t-1",
        approver="eve",
        approver_token="t-2",
        approved_at=NOW,
        at=NOW,
        expires=NOW + timedelta(days=number % 4 + 1),
    )


def with_people(draw: st.DrawFn, frozen: Snapshot) -> Snapshot:
    """What people said to this very evidence."""
    digest = evidence_digest(frozen)
    yes = st.builds(
        Approval,
        by=st.sampled_from(PEOPLE),
        at=st.just(NOW),
        evidence=st.just(digest),
        token=st.sampled_from(["t-1", "t-1", ""]),
    )
    said = draw(st.lists(waivers(digest), max_size=2, unique_by=lambda one: one.id))
    return replace(frozen, waivers=tuple(said), approvals=tuple(draw(st.lists(yes, max_size=2))))
