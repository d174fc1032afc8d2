"""Freeze the evidence of one cell: outcomes, causes, environment and attestation of its jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from orchestrator.application.gather_evidence import GatheredCell
from orchestrator.domain.attestation import mismatch
from orchestrator.domain.cell import CellState, is_own_baseline
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import Failure
from orchestrator.domain.gate.changes_of_tests import CHECK
from orchestrator.domain.gate.snapshot import (
    EXPECTED,
    CellEvidence,
    FailedTest,
    JobEvidence,
    MachineEvidence,
    Quarantine,
    UndeclaredRequirement,
)
from orchestrator.domain.manifest import untested
from orchestrator.domain.matrix import ExpectedHardware, jobs_left_out, system_of
from orchestrator.domain.node_ids import normal_nodeid
from orchestrator.domain.outcome import Reason, TestOutcome
from orchestrator.domain.quarantine import quarantine_of
from orchestrator.domain.retests import reruns_of
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.domain.versions import canonical_name, is_same_version

_OF_OTHER_CELLS = ("jobs_gone", "jobs_failed", "stands_for")
_OF_OTHER_JOBS = (
    "run",
    "failed_before",
    "passed_after",
    "tests_digest",
    "tests_lacking",
    "changes",
)
"""Fields that `freeze_evidence` sets, because they depend on other cells and other runs."""
_LOST = (Reason.AGENT, Reason.LOST, Reason.DISK_FULL)
"""Reasons of a lost attempt that a job may have caused."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Earlier results of the cell's platform."""

    streak: int
    """Number of consecutive passing runs."""
    collected: int | None
    """Number of tests of its last green run."""
    signatures: frozenset[str]
    """Failure signatures of the run that the gate passed last."""
    ran: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Jobs and tests (as `normal_nodeid`) that ran in its last green run or in the runs that the
    gate passed last, with whether they passed.
    """
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tests of its last green run by job, where they are needed."""


def freeze_cell(
    one: GatheredCell, before: EarlierResults, quarantines: Sequence[Quarantine]
) -> CellEvidence:
    """Return the evidence of a cell for a gate; for an unfinished cell, its progress."""
    cell = one.cell
    wrong = _mismatch(cell)
    ingested = cell.ingested is not None
    return filled(
        CellEvidence,
        cell,
        unset=_OF_OTHER_CELLS,
        run=one.taken.id,
        platform=cell.platform.id,
        state=cell.state.value,
        detail=_detail(cell),
        ended_at=_ended(cell),
        instance_type=_instance_type(cell),
        attested=_is_attested(cell, wrong),
        mismatch=wrong,
        ingested=ingested,
        subject=subject_of(one),
        packages=_packages(cell),
        other_subject="" if ingested else _other_subject(one),
        own_environment=cell.probed.get("own_environment") is True,
        undeclared_requirements=() if ingested else tuple(_undeclared(cell)),
        untested=() if ingested else tuple(_untested(one)),
        own_baseline=is_own_baseline(one.taken.evidence.record.run.payload_digest, one.taken.spec),
        lost_attempts=tuple(_lost_attempts(one)),
        jobs=_jobs(one, before, quarantines),
        pairs=tuple(pairs for job in cell.jobs for pairs in job.pairs),
        green_streak=before.streak,
        baseline_collected=before.collected,
        blame=tuple(answer.as_text() for answer in one.blames),
        expect=cell.platform.expect or ExpectedHardware(),
        machines=() if ingested else (machine_of(cell),),
    )


def _untested(one: GatheredCell) -> Iterator[str]:
    spec = one.taken.spec
    yield from jobs_left_out(spec.matrix, spec.manifest)
    yield from untested(spec.manifest)


def _lost_attempts(one: GatheredCell) -> Iterator[str]:
    for attempt in one.cell.attempts[:-1]:
        cause = attempt.cause
        if cause is not None and cause.reason in _LOST:
            yield f"attempt {attempt.number} of run {one.taken.id} ({cause.reason}: {cause.detail})"


def _instance_type(cell: CellRecord) -> str:
    """Return the instance type of its last machine, or of the reused evidence's machine."""
    leased = [lease.instance_type for lease in cell.leases if lease.instance_type]
    proven = cell.attestation.facts.get("instance_type", "") if cell.attestation else ""
    return leased[-1] if leased else proven


def machine_of(cell: CellRecord) -> MachineEvidence:
    """Return the cell's last machine, or the machine that reused evidence comes from."""
    leased, told = [lease.provider for lease in cell.leases], cell.attestation
    machine = cell.probed.get("machine")
    return MachineEvidence(
        provider=leased[-1] if leased else cell.platform.provider,
        instance_type=_instance_type(cell),
        devices=None if told is None else tuple(one.label for one in told.devices),
        system=system_of(machine if isinstance(machine, Mapping) else {}),
    )


def _is_attested(cell: CellRecord, wrong: str) -> bool:
    """Whether the agent attested a real machine that matches the request.

    A `local` machine is this computer, whose devices are compared as well.
    """
    told = cell.attestation is not None
    return told and not wrong and not cell.simulated and cell.ingested is None


def _mismatch(cell: CellRecord) -> str:
    """Return how the devices differ from the request; empty if they match.

    On the controller's own computer, PREPARING does not refuse other devices.
    """
    if cell.attestation is None:
        return ""
    known = cell.attestation
    asked = cell.platform.accelerator
    return known.mismatch or mismatch(asked, known.devices, simulated=known.simulated)


def _detail(cell: CellRecord) -> str:
    """Return the cell's detail; else the provider's last answer."""
    answers = [lease.refusal for lease in cell.leases if lease.refusal]
    return cell.detail or (answers[-1] if answers else "")


def _ended(cell: CellRecord) -> datetime | None:
    if cell.ingested is not None:
        return cell.ingested.dated_at
    return cell.entered_at if cell.state is CellState.DONE else None


def subject_of(one: GatheredCell) -> Mapping[str, str]:
    """Return the known facts of the subject; of ingested evidence, only name and version."""
    run, spec = one.taken.evidence.record.run, one.taken.spec
    known = {"name": run.subject_name, "version": run.subject_version}
    if one.cell.ingested is None:
        git = spec.matrix.subject.git
        known["payload_sha256"] = run.payload_digest
        known["wheel_sha256"] = spec.subject_digest or ""
        known["built"] = spec.subject_built
        known["git_sha"] = git.rev if git and _COMMIT.fullmatch(git.rev) else ""
    return {name: value for name, value in sorted(known.items()) if value}


def _packages(cell: CellRecord) -> Mapping[str, str]:
    found = cell.probed.get("packages")
    told = found if isinstance(found, Mapping) else {}
    return {str(name): str(told[name]) for name in sorted(told, key=str)}


def _undeclared(cell: CellRecord) -> Iterator[UndeclaredRequirement]:
    told = cell.probed.get("undeclared_requirements")
    for row in told if isinstance(told, list) else ():
        if isinstance(row, Mapping):
            yield UndeclaredRequirement(
                **{name: str(row.get(name, "")) for name in ("module", "file", "distribution")}
            )


def _other_subject(one: GatheredCell) -> str:
    """Return an installed version of the subject's name that differs from it, with its place.

    Empty unless the payload itself is the subject, because other subjects are installed and
    verified. The place is left out if the agent did not report it.
    """
    subject = one.taken.spec.matrix.subject
    if subject.source != "payload":
        return ""
    told = one.cell.probed.get("subject_metadata")
    rows = [row for row in told if isinstance(row, Mapping)] if isinstance(told, list) else []
    found = [(str(row["version"]), f" ({row['metadata']})") for row in rows]
    if not found:
        installed = {canonical_name(name): text for name, text in _packages(one.cell).items()}
        found = [(installed.get(canonical_name(subject.name), ""), "")]
    for version, place in found:
        if version and not is_same_version(version, subject.version):
            return version + place
    return ""


def _jobs(
    one: GatheredCell, before: EarlierResults, quarantines: Sequence[Quarantine]
) -> tuple[JobEvidence, ...]:
    tests = one.taken.evidence.tests.get(one.cell.id, ())
    return tuple(
        filled(
            JobEvidence,
            job,
            unset=_OF_OTHER_JOBS,
            degraded=job.degraded or "",
            skips=_reasons(job, tests, TestOutcome.SKIPPED, job.unnamed.skipped),
            expected_failures=_reasons(job, tests, TestOutcome.XFAILED, job.unnamed.xfailed),
            known_tests=_known_tests(job, before),
            failed=_failed(one, job, before, quarantines),
            failed_checks=tuple(c.name for c in job.checks if c.outcome == "failed"),
            check_reasons={
                c.name: c.reason for c in job.checks if c.outcome == "failed" and c.reason
            },
            newly_skipped=_newly_skipped(job, tests, before),
            checks=dict(sorted(Counter(check.outcome for check in job.checks).items())),
        )
        for job in one.cell.jobs
    )


def _reasons(
    job: JobRecord, tests: Iterable[TestFact], outcome: TestOutcome, unnamed: int
) -> Mapping[str, int]:
    """Return the tests with an outcome by reason; unnamed ones have none."""
    mine = (test for test in tests if test.job == job.id)
    reasons = Counter(test.reason for test in mine if test.outcome is outcome)
    if unnamed:
        reasons[""] += unnamed
    return dict(sorted(reasons.items()))


def _newly_skipped(
    job: JobRecord, tests: Iterable[TestFact], before: EarlierResults
) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for test in (test for test in tests if test.job == job.id):
        passed = before.ran.get((job.id, normal_nodeid(test.nodeid)))
        if test.outcome is TestOutcome.SKIPPED and passed is not None:
            found.setdefault(test.reason, []).append(test.nodeid)
        if test.outcome is TestOutcome.XFAILED and passed:
            found.setdefault(f"{EXPECTED}{test.reason}", []).append(test.nodeid)
    for check in (check for check in job.checks if check.outcome == "skipped"):
        if before.ran.get((job.id, f"{CHECK}{check.name}")) is not None:
            found.setdefault(check.reason, []).append(f"{CHECK}{check.name}")
    return {reason: tuple(sorted(found[reason])) for reason in sorted(found)}


def _known_tests(job: JobRecord, before: EarlierResults) -> Mapping[str, int]:
    """Return how many tests the last green run had in each path that is excluded now."""
    places = {place.path for place in (*job.test_set.modules, *job.test_set.ignored)}
    known = before.tests.get(job.id, ())
    starts = {path: (f"{path}::", f"{path}/") for path in sorted(places)}
    found = {path: sum(test.startswith(at) for test in known) for path, at in starts.items()}
    return {path: number for path, number in found.items() if number}


def _failed(
    one: GatheredCell, job: JobRecord, before: EarlierResults, quarantines: Sequence[Quarantine]
) -> tuple[FailedTest, ...]:
    mine = (failure for failure in one.failures if failure.job == job.id)
    told = (_failed_test(failure, before, quarantines) for failure in mine)
    retests = one.retests
    return tuple(replace(test, reruns=reruns_of(retests, job.id, test.nodeid)) for test in told)


def _failed_test(
    failure: Failure, before: EarlierResults, quarantines: Sequence[Quarantine]
) -> FailedTest:
    signature = failure.signature
    return FailedTest(
        job=failure.job,
        nodeid=failure.nodeid,
        signature=signature.id,
        exception=signature.exception,
        frame=signature.frame,
        message=signature.message,
        is_new=signature.id not in before.signatures,
        quarantine=quarantine_id(quarantines, failure.nodeid, failure.platform),
    )


def quarantine_id(quarantines: Sequence[Quarantine], nodeid: str, platform: str) -> str:
    """Return the id of a test's quarantine, over or not; empty without one."""
    found = quarantine_of(quarantines, nodeid, platform)
    return found.id if found else ""
