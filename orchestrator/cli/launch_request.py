"""From a matrix file to what is sent: read, checked, packed, uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from orchestrator.application.ports.documents import Source
from orchestrator.application.ports.wheels import SubjectWheel
from orchestrator.cli.baseline_upload import BaselineFile, find_baseline
from orchestrator.cli.client import Client
from orchestrator.cli.errors import CliError, document_error
from orchestrator.cli.overrides import with_overrides
from orchestrator.cli.session import Session
from orchestrator.cli.wiring import Packed, RefusedError
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import GitSource, Matrix
from orchestrator.domain.problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.problems import Path as Keys
from orchestrator.domain.units import size

BUILTIN = "builtin"
_MATRIX_LIMIT_BYTES = 1 << 20
_SHOWN_FROM_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """A launch that was checked as far as that can be done here."""

    file: str
    """As the person wrote it; what messages call the matrix."""
    matrix: Matrix
    source: Source
    payload: Packed | None
    """None means the built-in one."""
    subject: SubjectWheel | None
    """The subject's wheel, where it has one of its own."""
    hold_minutes: float = 0.0
    """How long the machine of a cell that does not pass is kept."""
    reruns: int = 0
    """How often a failed test is run again on its machine."""
    diagnose: bool = False
    """Whether it is found out who broke a failed test."""
    reuse_hours: float | None = None
    """How old evidence may be that stands for a job in which nothing changed."""
    baseline: BaselineFile | None = None
    """What benchmarks are paired with, where it has a file of its own."""

    @property
    def body(self) -> dict[str, object]:
        """What the API takes."""
        held = {"hold_minutes": self.hold_minutes} if self.hold_minutes else {}
        reused = {"reuse_hours": self.reuse_hours} if self.reuse_hours is not None else {}
        return {
            "matrix": self.source,
            "name": Path(self.file).name,
            "payload": self.payload.digest if self.payload else BUILTIN,
            "subject": self.subject.digest if self.subject else None,
            **({"baseline": self.baseline.digest} if self.baseline else {}),
            **held,
            **reused,
            **self._trials(),
        }

    def _trials(self) -> dict[str, object]:
        if not (self.reruns or self.diagnose):
            return {}
        return {"retests": {"reruns": self.reruns, "diagnose": self.diagnose}}


def read_order(
    session: Session,
    file: Path,
    settings: Sequence[str],
    scratch: Path,
    *,
    with_subject: bool = True,
) -> Order:
    """Read and check a matrix and what it names. Raises CliError.

    `scratch` is an empty folder, for the payload's archive. `with_subject` says whether the
    subject's wheel is to be found, or built, now.
    """
    documents = session.wiring.documents
    source: Source = _read_text(file)
    try:
        matrix = documents.read_matrix(source, str(file))
        if settings:
            source = with_overrides(matrix, settings)
            matrix = documents.read_matrix(source, f"{file} with --set")
        packed = _pack(session, file, matrix, source, scratch)
        if session.settings.url is None:
            # A controller elsewhere may have other providers, and another payload built in.
            manifest = packed.manifest if packed else _builtin_manifest(session)
            documents.check_matrix(
                source, str(file), manifest=manifest, providers=session.wiring.traits
            )
        subject = _subject(session, file, matrix, source, scratch) if with_subject else None
        baseline = _baseline(session, file, matrix, source, scratch)
    except InvalidDocumentError as error:
        raise document_error(error) from None
    known = _with_commits(session, matrix, subject, baseline)
    if known != matrix:
        source = documents.matrix_document(known)
    return Order(str(file), known, source, packed, subject, baseline=baseline)


def _with_commits(
    session: Session, matrix: Matrix, subject: SubjectWheel | None, baseline: BaselineFile | None
) -> Matrix:
    """The matrix with the commits that its wheels were built from: a branch goes on."""
    commit = subject.commit if subject else None
    if matrix.subject.git and commit:
        source = _at_commit(session, matrix.subject.git, commit)
        matrix = replace(matrix, subject=replace(matrix.subject, git=source))
    commit = baseline.commit if baseline else None
    if matrix.baseline and matrix.baseline.git and commit:
        source = _at_commit(session, matrix.baseline.git, commit)
        matrix = replace(matrix, baseline=replace(matrix.baseline, git=source))
    return matrix


def _at_commit(session: Session, source: GitSource, commit: str) -> GitSource:
    if source.rev != commit:
        session.say(f"{source.rev} of {source.url} is {commit}")
    return replace(source, rev=commit)


def upload(session: Session, client: Client, order: Order) -> None:
    """Send what the controller does not have yet."""
    packed = order.payload
    if packed is not None and not client.has(f"/payloads/{packed.digest}"):
        _send(session, client, f"/payloads/{packed.digest}", packed.archive, "payload")
    baseline = order.baseline
    if baseline is not None and not (baseline.shelf == "payloads" and client.has(baseline.place)):
        _send(session, client, baseline.place, baseline.path, "baseline")
    wheel = order.subject
    if wheel is not None:
        _send(session, client, f"/subjects/{wheel.digest}", wheel.path, wheel.path.name)


def _read_text(file: Path) -> str:
    if not file.exists():
        near = nearest(file.name, _neighbours(file)) if file.parent.is_dir() else ""
        raise CliError(f"{file}: there is no such file{near}")
    if file.is_dir():
        raise CliError(f"{file}: is a folder; name the matrix file in it")
    try:
        if file.stat().st_size > _MATRIX_LIMIT_BYTES:
            raise CliError(f"{file}: is too large for a matrix ({size(file.stat().st_size)})")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode().splitlines(keepends=True) or [""]
        if before[-1].endswith("\n"):
            before.append("")
        place = f"{file}:{len(before)}:{len(before[-1]) + 1}"
        raise CliError(f"{place}: is not UTF-8 text") from None
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None


def _neighbours(file: Path) -> list[str]:
    return [other.name for other in file.parent.iterdir() if other.suffix in (".yaml", ".yml")]


def _pack(
    session: Session, file: Path, matrix: Matrix, source: Source, scratch: Path
) -> Packed | None:
    if matrix.payload == BUILTIN or isinstance(matrix.payload, str):
        return None
    folder = file.parent / matrix.payload.path
    if not folder.exists():
        _refuse(session, file, source, ("payload", "path"), f"there is no {folder}")
    try:
        return session.wiring.pack(folder, scratch)
    except RefusedError as error:
        raise CliError(str(error)) from None


def _builtin_manifest(session: Session) -> Manifest:
    path = session.wiring.builtin_payload / "payload.toml"
    return session.wiring.documents.read_manifest(path.read_text(encoding="utf-8"), str(path))


def _subject(
    session: Session, file: Path, matrix: Matrix, source: Source, scratch: Path
) -> SubjectWheel | None:
    try:
        return session.wiring.subject(matrix.subject, base=file.parent, scratch=scratch)
    except RefusedError as error:
        _refuse(session, file, source, ("subject", matrix.subject.source), str(error))
    return None


def _baseline(
    session: Session, file: Path, matrix: Matrix, source: Source, scratch: Path
) -> BaselineFile | None:
    try:
        return find_baseline(session.wiring, matrix, base=file.parent, scratch=scratch)
    except RefusedError as error:
        where = matrix.baseline.source if matrix.baseline else ""
        _refuse(session, file, source, ("baseline", where), str(error))
    return None


def _refuse(session: Session, file: Path, source: Source, path: Keys, message: str) -> None:
    """Say it where it stands in the file. Raises InvalidDocumentError."""
    session.wiring.documents.refuse_matrix(source, str(file), [Problem(path, message)])


def _unseen(gone: int) -> None:
    """Nobody watches: `gone` bytes are not worth a line."""


def _send(session: Session, client: Client, path: str, file: Path, what: str) -> None:
    total = file.stat().st_size
    if total < _SHOWN_FROM_BYTES or not session.is_live:
        session.say(f"uploading the {what} ({size(total)})")
        client.put_file(path, file, sent=_unseen)
        return
    columns = (TextColumn("uploading {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=session.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        client.put_file(path, file, sent=lambda gone: progress.update(task, completed=gone))
