"""Resolves a firing: its subject and its baseline."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from orchestrator.application.context import Context
from orchestrator.application.payloads import put_subject
from orchestrator.application.ports.wheels import SubjectGoneError, SubjectWheel
from orchestrator.domain.matrix import Baseline, GitSource, Matrix, PayloadSource, Subject
from orchestrator.domain.schedule import (
    Resolved,
    Schedule,
    SubjectKind,
)
from orchestrator.domain.versions import canonical_name

NO_BASELINE = "no version has passed the gate yet: there is nothing to pair benchmarks with"


def resolve_firing(context: Context, schedule: Schedule) -> Resolved:
    """Resolve the subject and make its wheel available; may take minutes where it must be built.

    Raises SubjectGoneError, SubjectUnreachableError, InvalidDocumentError.
    """
    matrix = context.documents.read_matrix(schedule.matrix, schedule.matrix_name)
    matrix, subject_digest, built = _with_subject(context, schedule, matrix)
    matrix, baseline_digest, remarks = _with_baseline(context, schedule, matrix)
    if built:
        remarks = (*remarks, f"the wheel was built {built}")
    return Resolved(
        matrix=context.documents.matrix_document(matrix),
        subject_digest=subject_digest,
        baseline_digest=baseline_digest,
        subject=_words(matrix.subject),
        known=_known(schedule, matrix.subject),
        subject_built=built,
        remarks=remarks,
    )


def _with_subject(
    context: Context, schedule: Schedule, matrix: Matrix
) -> tuple[Matrix, str | None, str]:
    match schedule.subject.kind:
        case SubjectKind.FIXED:
            return matrix, schedule.subject_digest, ""
        case SubjectKind.LATEST:
            return replace(matrix, subject=_newest(context, schedule, matrix.subject)), None, ""
        case SubjectKind.BRANCH:
            subject, wheel = _head(context, schedule, matrix.subject)
            return replace(matrix, subject=subject), wheel.digest, wheel.built


def _newest(context: Context, schedule: Schedule, subject: Subject) -> Subject:
    package = schedule.subject.package or subject.name
    asked = schedule.subject.prereleases
    version = context.gate.subjects.newest(package, prereleases=asked)
    return Subject(name=package, version=version, package=f"{package}=={version}")


def repository_of(schedule: Schedule, subject: Subject) -> str:
    """Return the URL of the branch that the schedule follows."""
    return schedule.subject.url or (subject.git.url if subject.git else "")


def _head(context: Context, schedule: Schedule, subject: Subject) -> tuple[Subject, SubjectWheel]:
    asked = schedule.subject
    url = repository_of(schedule, subject)
    branch = asked.branch or (subject.git.rev if subject.git else "")
    commit = context.gate.subjects.head(url, branch)
    with tempfile.TemporaryDirectory(prefix="seatrial-subject-", dir=context.scratch) as folder:
        wheel = context.gate.subjects.build(url, commit, Path(folder))
        if canonical_name(wheel.distribution) != canonical_name(subject.name):
            raise SubjectGoneError(
                f"{url} at {commit[:12]} builds {wheel.distribution}, and the matrix is about"
                f" {subject.name}"
            )
        put_subject(context, wheel.digest, wheel.path)
    # The whole commit, so that evidence and verdicts can name it.
    source = GitSource(url=url, rev=commit)
    return Subject(name=subject.name, version=wheel.version, git=source), wheel


def _with_baseline(
    context: Context, schedule: Schedule, matrix: Matrix
) -> tuple[Matrix, str | None, tuple[str, ...]]:
    if not schedule.last_passed_baseline:
        return matrix, schedule.baseline_digest, ()
    passed = context.stores.gates.last_passed(schedule.gate)
    run = context.stores.runs.get(passed.runs[-1]) if passed else None
    if run is None:
        return replace(matrix, baseline=None), None, (NO_BASELINE,)
    spec = context.stores.runs.spec(run.id)
    before = spec.matrix.subject
    if (before.source == "payload") != (matrix.subject.source == "payload"):
        remark = f"run {run.id} passed last, and its subject is of another kind: nothing is paired"
        return replace(matrix, baseline=None), None, (remark,)
    pairing = matrix.baseline or Baseline()
    baseline = replace(pairing, package=None, wheel=None, git=None, payload=None)
    if before.source == "payload":
        source = PayloadSource(path=f"payload of run {run.id}")
        return replace(matrix, baseline=replace(baseline, payload=source)), run.payload_digest, ()
    baseline = replace(baseline, **{before.source: getattr(before, before.source)})
    digest = None if before.source == "package" else spec.subject_digest
    return replace(matrix, baseline=baseline), digest, ()


def _known(schedule: Schedule, subject: Subject) -> dict[str, str]:
    known = {"name": subject.name, "version": subject.version}
    if schedule.subject.kind is SubjectKind.BRANCH and subject.git is not None:
        known["git_sha"] = subject.git.rev
    return known


def _words(subject: Subject) -> str:
    at = f" at {subject.git.rev[:12]}" if subject.git else ""
    return f"{subject.name} {subject.version}{at}"
