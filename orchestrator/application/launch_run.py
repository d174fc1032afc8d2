"""Launches a matrix: validates everything, stores the run, then starts its cells.

A rerun launches the jobs that did not pass, with the same matrix, payload and subject.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from tempfile import SpooledTemporaryFile
from typing import Literal

from orchestrator.application.context import Context
from orchestrator.application.ports.documents import Source
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cell import Run, RunSpec
from orchestrator.domain.commit import Commit
from orchestrator.domain.document_problems import Problem
from orchestrator.domain.machine import ConfigError, Extent, Offers
from orchestrator.domain.manifest import Manifest, StoredPayload
from orchestrator.domain.matrix import Baseline, CellPlan, Matrix, expand
from orchestrator.domain.retention import RunPart
from orchestrator.domain.retests import RetestOptions
from orchestrator.store.runs import KeyClaim

BUILTIN = "builtin"
Later = Literal["subject", "baseline"]
STALE_CLAIM = timedelta(minutes=2)
"""After this time, an idempotency key without a run belongs to a dead request."""

_ELSEWHERE = (
    "the path {!r} is not on the server: upload the {} first (PUT /api/v1/{}/{{sha256}}) and "
    "name its sha256; `seatrial run` does both"
)
_NOT_HANDED_OUT = (
    "the controller does not provide the secret {}: set it in the controller's environment and, if"
    " others can reach the controller, name it in SEATRIAL_JOB_SECRETS"
)
_NO_UNTRUSTED = (
    f"this controller runs no untrusted code: {Budget(Period.UNTRUSTED, Decimal(0)).setting} says"
    " what it may cost a day"
)
_NOT_RENTED = (
    "untrusted code runs only on machines that are rented for it and keep it from the cloud's"
    " metadata server, which those of {} do not"
)
_OWN_INDEX = (
    "the environment {!r} has `index = true`: the machine's pip could build packages of untrusted"
    " code as the agent's user"
)
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NOT_SENT = "its wheel must be uploaded first: PUT /api/v1/subjects/{sha256}"


class PayloadMissingError(LookupError):
    """The payload, or the subject's wheel, has not been uploaded."""


class KeyReusedError(ValueError):
    """The idempotency key was used with another body."""


class KeyInFlightError(RuntimeError):
    """A request with this idempotency key is in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A launch request."""

    matrix: Source
    name: str = "matrix"
    """File name of the matrix, for messages."""
    payload: str = BUILTIN
    """Digest of an uploaded archive, or ``builtin``."""
    subject_digest: str | None = None
    """Digest of the uploaded wheel, where the matrix names one."""
    only: Mapping[str, Sequence[str]] | None = None
    """Jobs by cell name; None means all."""
    rerun_of: str | None = None
    hold_minutes: float = 0.0
    """Minutes for which the machine of a cell that did not pass is held."""
    baseline_digest: str | None = None
    """Digest of the uploaded baseline, where the matrix names a file."""
    retests: RetestOptions | None = None
    """Options for retests of failing tests."""
    reuse_max_age_s: float | None = None
    """Jobs with identical inputs and evidence no older than this are not run; None runs all."""
    subject_built: str = ""
    """Where the subject's wheel was built, set by controllers only."""
    commit: Commit = field(default_factory=Commit)
    """The tested commit; by default the revision of a subject from git."""
    untrusted: bool = False
    """Whether the code is untrusted; a repetition of an untrusted run always is."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An idempotency key of a client, with the digest of its request."""

    key: str
    fingerprint: str
    """Digest of the whole body."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The run of an order; `replayed` if an earlier request with the same key launched it."""

    run: Run
    replayed: bool


def launch_run(context: Context, order: LaunchOrder, key: IdempotencyKey | None) -> Launched:
    """Validate the order, store the run and start its cells.

    Raises:
        InvalidDocumentError: The matrix cannot be launched; nothing was changed.
        PayloadMissingError: What it names was not uploaded; nothing was changed.
        KeyReusedError, KeyInFlightError: The key says that this is not a new request.
    """
    if key is not None:
        replayed = _claim(context, key)
        if replayed is not None:
            return Launched(replayed, replayed=True)
    try:
        run, spec, cells = prepare_launch(context, order)
        context.stores.runs.create(run, spec, cells, key=key.key if key else None)
    except BaseException:
        if key is not None:
            context.stores.runs.drop_key(key.key)
        raise
    for cell_id, _ in cells:
        context.wake(cell_id)
    return Launched(run, replayed=False)


def _claim(context: Context, key: IdempotencyKey) -> Run | None:
    at = context.clock.now()
    claim, run_id = context.stores.runs.claim_key(
        key.key, key.fingerprint, at=at, stale_before=at - STALE_CLAIM
    )
    if claim is KeyClaim.OTHER_BODY:
        raise KeyReusedError(f"Idempotency-Key {key.key!r} was used with another body")
    if claim is KeyClaim.IN_FLIGHT:
        raise KeyInFlightError(f"a request with Idempotency-Key {key.key!r} is being worked on")
    return context.stores.runs.get(run_id) if claim is KeyClaim.REPLAY and run_id else None


def prepare_launch(
    context: Context, order: LaunchOrder
) -> tuple[Run, RunSpec, list[tuple[str, CellPlan]]]:
    """Validate an order and return (run, spec, [(cell id, cell's plan)]); stores nothing.

    Raises:
        InvalidDocumentError: The matrix, a selection or an option is not valid.
        PayloadMissingError: A file that the order names was not uploaded.
    """
    payload = payload_of(context, order)
    matrix, plans = check_order(context, order, payload)
    run = Run(
        id=context.new_id(),
        matrix_name=matrix.metadata.name,
        subject_name=matrix.subject.name,
        subject_version=matrix.subject.version,
        payload_digest=payload.digest,
        created_at=context.clock.now(),
        rerun_of=order.rerun_of,
        commit=order.commit or _commit_of(matrix),
        untrusted=payload.manifest.is_untrusted,
    )
    spec = spec_of(context, order, payload.manifest, matrix)
    return run, spec, [(f"{run.id}-{n}", plan) for n, plan in enumerate(plans)]


def spec_of(context: Context, order: LaunchOrder, manifest: Manifest, matrix: Matrix) -> RunSpec:
    """Return the parameters of the run of an order; its files are uploaded."""
    baseline = matrix.baseline.source if matrix.baseline else ""
    wheel = order.baseline_digest if baseline in ("wheel", "git") else None
    return RunSpec(
        matrix,
        manifest,
        order.subject_digest,
        order.only,
        order.hold_minutes,
        baseline_digest=order.baseline_digest,
        retests=order.retests,
        reuse_max_age_s=order.reuse_max_age_s,
        subject_built=order.subject_built,
        subject_contents=_contents(context, order.subject_digest),
        baseline_contents=_contents(context, wheel),
    )


def _commit_of(matrix: Matrix) -> Commit:
    """Return the commit that the subject is built from; empty if the revision is no commit."""
    rev = matrix.subject.git.rev if matrix.subject.git else ""
    return Commit(sha=rev) if _SHA.fullmatch(rev) else Commit()


def _contents(context: Context, digest: str | None) -> str:
    return contents_digest(context.blobs.open(digest)) if digest is not None else ""


def payload_of(context: Context, order: LaunchOrder) -> StoredPayload:
    """Return the payload of an order; as untrusted where the order, or what it repeats, is.

    Raises PayloadMissingError.
    """
    payload = find_payload(context, order.payload)
    origin = context.stores.runs.spec(order.rerun_of).manifest if order.rerun_of else None
    if order.untrusted or (origin is not None and origin.is_untrusted):
        return replace(payload, manifest=payload.manifest.as_untrusted())
    return payload


def find_payload(context: Context, name: str) -> StoredPayload:
    """Return the stored payload of a digest, or the built-in one. Raises PayloadMissingError."""
    digest = context.builtin_payload() if name == BUILTIN else name
    payload = context.stores.payloads.get(digest)
    if payload is None or not context.blobs.claim(digest):
        raise missing_upload(context, RunPart.PAYLOAD, digest)
    return payload


def missing_upload(
    context: Context, part: RunPart, digest: str, *, shelf: str = ""
) -> PayloadMissingError:
    """Return the error for an upload that is not stored: it never was, or it was pruned.

    Args:
        context: The context.
        part: What it is of a run.
        digest: Its sha256.
        shelf: ``payloads`` or ``subjects``, as in REST; by default the one of the part.
    """
    shelf = shelf or ("payloads" if part is RunPart.PAYLOAD else "subjects")
    what, put = f"{part.noun} {digest}", f"PUT /api/v1/{shelf}/{digest}"
    pruned = context.stores.retention.pruned_blob(digest, part)
    if pruned is None:
        return PayloadMissingError(f"{what} was not uploaded: {put}")
    again = f"`seatrial run` with the same files uploads it again, and so does {put}"
    return PayloadMissingError(f"{what} {pruned.when}; {again}")


def check_order(
    context: Context,
    order: LaunchOrder,
    payload: StoredPayload,
    *,
    later: Collection[Later] = (),
) -> tuple[Matrix, list[CellPlan]]:
    """Return the matrix and its cells, if they can be launched.

    A requested item that is not available is refused; nothing replaces it. `later` says what is
    found at the launch itself, and cannot be sent now.
    """
    matrix = _check_matrix(context, order, payload)
    problems = _place_problems(context, matrix)
    if "subject" in later:
        problems += _unused("subject", order.subject_digest, "is found when it is launched")
    else:
        problems += _subject_problems(context, order, matrix)
    if "baseline" not in later:
        problems += _baseline_problems(context, order, matrix)
    problems += [
        Problem(("secrets", name), _NOT_HANDED_OUT.format(name))
        for name in matrix.secrets
        if context.secret(name) is None
    ]
    plans = list(expand(matrix, payload.manifest))
    if payload.manifest.is_untrusted:
        problems += _untrusted_problems(context, matrix, payload.manifest, plans)
    context.documents.refuse_matrix(order.matrix, order.name, problems)
    return matrix, [_narrowed(plan, order.only) for plan in plans if _is_wanted(plan, order.only)]


def _check_matrix(context: Context, order: LaunchOrder, payload: StoredPayload) -> Matrix:
    sketch = context.documents.sketch_matrix(order.matrix, order.name)
    asked = sketch.payload
    if order.payload == BUILTIN and not isinstance(asked, str):
        # Before the jobs are looked for in another payload than the one that was asked for.
        problem = Problem(("payload", "path"), _ELSEWHERE.format(asked.path, "payload", "payloads"))
        context.documents.refuse_matrix(order.matrix, order.name, [problem])
    return context.documents.check_matrix(
        order.matrix,
        order.name,
        manifest=payload.manifest,
        providers=context.traits,
        refused=_refused_providers(context, sketch),
    )


def _refused_providers(context: Context, matrix: Matrix) -> dict[str, str]:
    """Return why providers of the matrix cannot be used here, such as for a missing extra."""
    found = {}
    for name in {platform.provider for platform in matrix.platforms} & context.traits.keys():
        try:
            context.provider(name)
        except ConfigError as error:
            found[name] = str(error)
    return found


def _is_wanted(plan: CellPlan, only: Mapping[str, Sequence[str]] | None) -> bool:
    return only is None or bool(only.get(plan.id))


def _narrowed(plan: CellPlan, only: Mapping[str, Sequence[str]] | None) -> CellPlan:
    if only is None:
        return plan
    jobs = tuple(job for job in plan.jobs if job in only[plan.id])
    return CellPlan(plan.id, plan.platform, plan.environment, jobs)


def _subject_problems(context: Context, order: LaunchOrder, matrix: Matrix) -> list[Problem]:
    source = matrix.subject.source
    if source not in ("wheel", "git"):
        return _unused("subject", order.subject_digest, f"comes from the {source}")
    if order.subject_digest is None:
        message = (
            _NOT_SENT
            if source == "git"
            else _ELSEWHERE.format(matrix.subject.wheel, "wheel", "subjects")
        )
        return [Problem(("subject", source), message)]
    if not context.blobs.claim(order.subject_digest):
        raise missing_upload(context, RunPart.SUBJECT, order.subject_digest)
    return []


def _baseline_problems(context: Context, order: LaunchOrder, matrix: Matrix) -> list[Problem]:
    baseline, digest = matrix.baseline, order.baseline_digest
    if baseline is None:
        return _unused("baseline", digest, "is not in the matrix")
    if baseline.source == "package":
        return _unused("baseline", digest, "comes from the package")
    shelf = "payloads" if baseline.source == "payload" else "subjects"
    if digest is None:
        return [Problem(("baseline", baseline.source), _missing_baseline(baseline, shelf))]
    known = context.blobs.claim(digest)
    if shelf == "payloads":
        known = known and context.stores.payloads.get(digest) is not None
    if not known:
        raise missing_upload(context, RunPart.BASELINE, digest, shelf=shelf)
    return []


def _missing_baseline(baseline: Baseline, shelf: str) -> str:
    path = baseline.payload.path if baseline.payload else baseline.wheel
    what = "payload" if baseline.payload else "wheel"
    return _ELSEWHERE.format(path, what, shelf) if path else _NOT_SENT


def _unused(field: str, digest: str | None, fact: str) -> list[Problem]:
    """Return errors for uploads that the matrix does not use."""
    if digest is None:
        return []
    message = f"the {field} {fact}, so the file {digest} would not be used; send none, or name it"
    return [Problem((field,), f"{message} in the matrix")]


def _untrusted_problems(
    context: Context, matrix: Matrix, manifest: Manifest, plans: Iterable[CellPlan]
) -> Iterator[Problem]:
    """Yield what untrusted code may not have."""
    if all(budget.period is not Period.UNTRUSTED for budget in context.budgets):
        yield Problem((), _NO_UNTRUSTED)
    for index, platform in enumerate(matrix.platforms):
        if not context.traits[platform.provider].takes_untrusted:
            yield Problem(("platforms", index, "provider"), _NOT_RENTED.format(platform.provider))
    for name in matrix.secrets:
        yield Problem(("secrets", name), "untrusted code gets no secrets")
    for name in sorted({plan.environment for plan in plans}):
        environment = manifest.environment(name)
        if environment is not None and environment.index:
            yield Problem(("payload",), _OWN_INDEX.format(name))


def _place_problems(context: Context, matrix: Matrix) -> list[Problem]:
    """Return platform errors of own hosts."""
    problems = []
    for index, platform in enumerate(matrix.platforms):
        provider = context.provider(platform.provider)
        if context.traits[platform.provider].rented or not isinstance(provider, Offers):
            continue
        try:
            provider.places(platform)
        except ConfigError as error:
            whole = ("provider",) if error.extent is Extent.PROJECT else ()
            problems.append(Problem(("platforms", index, *whole), str(error)))
    return problems


_IN_MEMORY = 64 * 1024 * 1024


def contents_digest(wheel: Iterable[bytes]) -> str:
    """Return the sha256 over name, size and CRC of each file of a wheel but RECORD.

    Empty for other files.

    A wheel that is built again from the same sources has the same, and another sha256.

    Args:
        wheel: Its bytes, in pieces.
    """
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        for piece in wheel:
            file.write(piece)
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except zipfile.BadZipFile:
            return ""
    told = sorted(
        f"{one.filename}\0{one.file_size}\0{one.CRC:08x}"
        for one in entries
        if not one.filename.endswith(".dist-info/RECORD")
    )
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
