"""From what is stored to what is answered: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from orchestrator.api.history_serializers import (
    tell_cluster,
    tell_diagnosed,
    tell_quarantined,
    tell_use,
)
from orchestrator.api.ingest_serializers import tell_ingested
from orchestrator.api.machine_serializers import (
    tell_attestation,
    tell_decision,
    tell_lease,
    tell_machine,
)
from orchestrator.api.run_responses import (
    ArtifactResponse,
    AttemptResponse,
    CellResponse,
    CheckResponse,
    CountsResponse,
    JobResponse,
    MetricResponse,
    NoticeResponse,
    PairResponse,
    PayloadResponse,
    RunResponse,
    RunSummaryResponse,
    SubjectResponse,
    TestResponse,
    TokenResponse,
    TransitionResponse,
)
from orchestrator.application.ports.stores import StoredPayload, Token
from orchestrator.domain.cell import Attempt, Run, Transition
from orchestrator.domain.facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.fingerprint import fingerprint
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.outcome import Counts
from orchestrator.domain.paired_samples import pairs_of, slowdown
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, JobRecord, RunRecord

PACKAGES = "packages"


def tell_run(record: RunRecord) -> RunResponse:
    """A run with its cells."""
    summary = tell_summary(record.run, record.counts, record.cost_usd)
    return RunResponse(
        **dict(summary),
        cells=[tell_cell(cell, record) for cell in record.cells],
        clusters=[tell_cluster(cluster) for cluster in record.clusters],
        known_issues=[tell_use(use) for use in record.known_issues],
        quarantined=[tell_quarantined(one) for one in record.quarantined],
        diagnosed=[tell_diagnosed(one) for one in record.diagnosed],
    )


def tell_summary(run: Run, counts: Counts, cost_usd: Decimal) -> RunSummaryResponse:
    """A run without its cells."""
    return RunSummaryResponse(
        id=run.id,
        state=run.state,
        outcome=run.outcome,
        subject=SubjectResponse(name=run.subject_name, version=run.subject_version),
        matrix=run.matrix_name,
        cost_usd=cost_usd,
        counts=_counts(counts),
        pass_rate=_rate(counts.pass_rate),
        payload=run.payload_digest,
        rerun_of=run.rerun_of,
        created_at=run.created_at,
        finished_at=run.finished_at,
        cancel_requested_at=run.cancel_requested_at,
    )


def tell_cell(cell: CellRecord, run: RunRecord) -> CellResponse:
    """One cell of a run."""
    last = cell.leases[-1] if cell.leases else None
    return CellResponse(
        id=cell.id,
        platform=cell.platform.id,
        environment=cell.environment,
        state=cell.state,
        entered_at=cell.entered_at,
        outcome=cell.outcome,
        reason=cell.reason,
        detail=cell.detail,
        optional=cell.platform.optional,
        simulated=cell.simulated,
        counts=_counts(cell.counts),
        pass_rate=_rate(cell.counts.pass_rate),
        jobs=[_job(job) for job in cell.jobs],
        cost_usd=cell.cost_usd,
        attempts=[_attempt(attempt) for attempt in cell.attempts],
        machine=tell_machine(last) if last else None,
        leases=[tell_lease(lease) for lease in cell.leases],
        kept_until=run.kept_until(cell),
        decisions=[tell_decision(decision) for decision in cell.decisions],
        attestation=tell_attestation(cell.attestation) if cell.attestation else None,
        ingested=tell_ingested(cell.ingested) if cell.ingested else None,
        packages=_packages(cell.probed),
        fingerprint=fingerprint(cell.probed),
        probed={key: value for key, value in cell.probed.items() if key != PACKAGES},
        transitions=[_transition(step) for step in cell.transitions],
        notices=[_notice(notice) for notice in cell.notices],
        artifacts=[_artifact(artifact) for artifact in cell.artifacts],
    )


def _packages(probed: Mapping[str, object]) -> dict[str, str]:
    """A machine said it: whatever else it may be, it becomes names and texts."""
    found = probed.get(PACKAGES)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(version) for name, version in found.items()}


def _rate(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate)


def _counts(counts: Counts) -> CountsResponse:
    return CountsResponse(**counts.as_dict())


def _job(job: JobRecord) -> JobResponse:
    return JobResponse(
        id=job.id,
        kind=job.kind,
        title=job.title,
        outcome=job.outcome,
        reason=job.reason,
        detail=job.detail,
        degraded=job.degraded,
        counts=_counts(job.counts),
        checks=[_check(check) for check in job.checks],
        metrics=[_metric(metric) for metric in job.metrics],
        pairs=[_pair(pairs) for pairs in pairs_of(job)],
        started_at=job.started_at,
        duration_s=job.duration_s,
        timeout_s=job.timeout_s,
        current=job.current,
        reused_from=job.reused_from,
        at=job.at,
        reuse=job.reuse,
    )


def _check(check: CheckFact) -> CheckResponse:
    return CheckResponse(
        name=check.name,
        outcome=check.outcome,
        value=check.value,
        unit=check.unit,
        tolerance=check.tolerance,
        reason=check.reason,
    )


def _metric(metric: MetricFact) -> MetricResponse:
    return MetricResponse(
        name=metric.name,
        samples=list(metric.samples),
        unit=metric.unit,
        direction=metric.direction,
        params=dict(metric.params),
    )


def _pair(pairs: Pairs) -> PairResponse:
    return PairResponse(
        metric=pairs.metric,
        unit=pairs.unit,
        direction=pairs.direction,
        pairs=len(pairs.subject),
        slowdown=slowdown(pairs),
        remarks=list(pairs.remarks),
    )


def _attempt(attempt: Attempt) -> AttemptResponse:
    cause = attempt.cause
    return AttemptResponse(
        number=attempt.number,
        outcome=attempt.outcome,
        reason=cause.reason if cause else "",
        detail=cause.detail if cause else "",
        opened_at=attempt.opened_at,
        closed_at=attempt.closed_at,
    )


def _transition(step: Transition) -> TransitionResponse:
    words = {"from": step.origin, "to": step.target}
    return TransitionResponse(at=step.at, attempt=step.attempt, reason=step.reason, **words)


def _notice(notice: Notice) -> NoticeResponse:
    return NoticeResponse(
        at=datetime.fromtimestamp(notice.ts, UTC),
        job=notice.job,
        level=notice.level,
        message=notice.message,
    )


def _artifact(artifact: ArtifactRecord) -> ArtifactResponse:
    return ArtifactResponse(
        name=artifact.name, size_bytes=artifact.size_bytes, sha256=artifact.digest
    )


def tell_test(test: TestFact) -> TestResponse:
    """One test."""
    return TestResponse(
        job=test.job,
        nodeid=test.nodeid,
        outcome=test.outcome.word,
        final=test.final,
        duration_s=test.duration_s,
        reason=test.reason,
        message=test.message,
        text=test.text,
    )


def tell_payload(payload: StoredPayload) -> PayloadResponse:
    """An uploaded payload."""
    return PayloadResponse(
        digest=payload.digest,
        size_bytes=payload.size_bytes,
        name=payload.manifest.name,
        version=payload.manifest.version,
        jobs=[job.id for job in payload.manifest.job],
    )


def tell_token(token: Token) -> TokenResponse:
    """A token, without its secret."""
    return TokenResponse(
        id=token.id,
        name=token.name,
        scope=token.scope,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
    )


def sum_usd(costs: Iterable[Decimal]) -> Decimal:
    """Add money up."""
    return sum(costs, Decimal(0))
