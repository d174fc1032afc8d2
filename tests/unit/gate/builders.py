"""Evidence and policies made by hand, and statistics that need no library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median

from orchestrator.domain.catalogue import promised
from orchestrator.domain.gate.evaluate import RULES_VERSION, evaluate
from orchestrator.domain.gate.gate_documents import digest_of, policy_digest, snapshot_document
from orchestrator.domain.gate.performance import PairedComparison
from orchestrator.domain.gate.policy import (
    ApprovalRule,
    GateMetadata,
    GatePolicy,
    GateSpec,
    JobRule,
    PlatformRule,
    PolicyIssue,
)
from orchestrator.domain.gate.snapshot import (
    CellEvidence,
    FailedTest,
    JobEvidence,
    MachineEvidence,
    Snapshot,
)
from orchestrator.domain.gate.verdict import RuleResult, Verdict
from orchestrator.domain.known_issue import IssueMatch
from orchestrator.domain.outcome import Counts, Outcome, worst

NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
PRODUCT = "torchbridge"


class PlainStatistics:
    """The port by arithmetic: an interval of the median that narrows with more pairs."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> PairedComparison:
        ratios = [s / b for s, b in zip(subject, baseline, strict=True)]
        slower = [(1 / r if direction == "higher" else r) - 1 for r in ratios]
        middle = median(slower)
        wide = median(abs(each - middle) for each in slower) / len(slower) ** 0.5
        return PairedComparison(
            pairs=len(slower),
            slowdown=middle,
            low=middle - wide,
            high=middle + wide,
            p=alpha / 10 if middle - wide > margin else 0.5,
            detectable=margin + 2 * wide,
        )

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        return tuple(min(1.0, each * len(p)) for each in p)


def failed(nodeid: str = "t.py::a", job: str = "moe", **more: object) -> FailedTest:
    told: dict[str, object] = {"signature": "s1-aa", "exception": "ValueError", "message": "no"}
    return FailedTest(job=job, nodeid=nodeid, **{**told, **more})  # type: ignore[arg-type]


def job(name: str = "moe", *tests: FailedTest, passed: int = 5, **more: object) -> JobEvidence:
    """A suite with these failing tests."""
    told: dict[str, object] = {
        "kind": "suite",
        "outcome": Outcome.FAILED if tests else Outcome.PASSED,
        "reason": "tests" if tests else "",
        "counts": Counts(passed=passed, failed=len(tests)),
        "failed": tuple(replace(test, job=name) for test in tests),
        "at": NOW - timedelta(hours=1),
        "tests_digest": "7e" * 32,
    }
    return JobEvidence(id=name, **{**told, **more})  # type: ignore[arg-type]


def machine(platform: str = "gcp-l4", **more: object) -> MachineEvidence:
    """As the platform's id promises it."""
    known = promised(platform)
    told: dict[str, object] = {"provider": known.provider or "static", "devices": (known.device,)}
    return MachineEvidence(**{**told, **more})  # type: ignore[arg-type]


def cell(platform: str = "gcp-l4", *jobs: JobEvidence, **more: object) -> CellEvidence:
    """An attested cell that ended an hour ago."""
    held = jobs or (job(),)
    told: dict[str, object] = {
        "run": "run-1",
        "id": platform,
        "environment": "image",
        "state": "done",
        "outcome": worst(one.outcome for one in held if one.outcome),
        "ended_at": NOW - timedelta(hours=1),
        "attested": True,
        "subject": {"name": "torchbridge", "version": "0.4.6", "wheel_sha256": "ab" * 32},
        "counts": sum((one.counts for one in held), Counts()),
        "jobs": held,
        "machines": (machine(platform),),
    }
    return CellEvidence(platform=platform, **{**told, **more})  # type: ignore[arg-type]


def unavailable(platform: str, **more: object) -> CellEvidence:
    return cell(
        platform,
        job(outcome=Outcome.NOT_RUN, counts=Counts()),
        outcome=Outcome.NOT_AVAILABLE,
        reason="not_offered",
        detail="no zone has it",
        **{"attested": False, **more},
    )


def snapshot(*cells: CellEvidence, **more: object) -> Snapshot:
    told: dict[str, object] = {
        "subject": dict(cells[0].subject) if cells else {},
        "runs": tuple(sorted({one.run for one in cells})),
        "cost_usd": Decimal("1.25"),
    }
    return Snapshot(product=PRODUCT, cells=cells, **{**told, **more})  # type: ignore[arg-type]


def policy(*platforms: PlatformRule | str, **spec: object) -> GatePolicy:
    """With every job of every platform required and no approvals, where nothing else is said."""
    rules = tuple(PlatformRule(id=p) if isinstance(p, str) else p for p in platforms)
    told: dict[str, object] = {"jobs": (JobRule(id="*"),), "approvals": ApprovalRule(on=())}
    return GatePolicy(
        metadata=GateMetadata(name="release", product=PRODUCT, owner="team"),
        spec=GateSpec(
            platforms=rules or (PlatformRule(id="gcp-l4"),),
            **{**told, **spec},  # type: ignore[arg-type]
        ),
    )


def issue(name: str = "KI-1", **more: object) -> PolicyIssue:
    told: dict[str, object] = {
        "title": "known",
        "owner": "team",
        "match": IssueMatch(exception="ValueError"),
        "opened": date(2026, 1, 1),
        "expires": date(2026, 3, 1),
    }
    return PolicyIssue(id=name, **{**told, **more})  # type: ignore[arg-type]


def evidence_digest(evidence: Snapshot) -> str:
    return digest_of(snapshot_document(replace(evidence, waivers=(), approvals=(), reviews=())))


def judge(
    rules: GatePolicy,
    evidence: Snapshot,
    now: datetime = NOW,
    *,
    digest: str | None = None,
    rules_version: int = RULES_VERSION,
) -> Verdict:
    return evaluate(
        rules,
        evidence,
        now,
        statistics=PlainStatistics(),
        policy_digest=policy_digest(rules),
        evidence_digest=evidence_digest(evidence) if digest is None else digest,
        tool="seatrial 0",
        rules_version=rules_version,
    )


def result(verdict: Verdict, rule: str) -> RuleResult:
    found = [one for one in verdict.rules if one.id == rule]
    assert len(found) == 1, [one.id for one in verdict.rules]
    return found[0]
