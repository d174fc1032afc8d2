"""Builds a launch request from a matrix and options: validated, packed, uploaded and confirmed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Union, cast, get_args, get_origin, get_type_hints

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from orchestrator.application.ports.archives import PackedPayload
from orchestrator.application.ports.documents import Documents, Source
from orchestrator.application.ports.wheels import SubjectWheel
from orchestrator.cli.errors import USAGE, CliError, RefusedError, document_error
from orchestrator.cli.read_file import read_document
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, is_confirmed
from orchestrator.cli.view.plan import plan_table, shortages, totals
from orchestrator.cli.wiring import Wiring
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.commit import Commit
from orchestrator.domain.document_problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.document_problems import Path as Keys
from orchestrator.domain.launch_plan import Plan, cost_of_attempt
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import GitSource, Matrix, Platform
from orchestrator.domain.schedule import SubjectKind, SubjectSelector
from orchestrator.domain.units import plural, size

_TESTS_SHOWN = 3


def ask(session: Session, plan: Plan, *, yes: bool) -> None:
    """Show the plan, and ask for consent to costs. Raises CliError."""
    rented = plan.rented(session.wiring.traits)
    if rented:
        session.err.print(plan_table(session.err, plan))
        for line in shortages(plan):
            session.err.print(line)
    for text in () if rented else plan.warnings:
        session.say(f"note: {text}")
    session.say(f"plan: {totals(plan)}")
    if not rented or yes:
        return
    rented = [cell for cell in rented if cell.is_offered] or rented
    names = ", ".join(one_line(cell.cell.id) for cell in rented)
    if not session.is_interactive:
        raise CliError(
            f"{names} would be rented, {cost_of_attempt(plan.worst_usd)},"
            " and there is no terminal to ask on: say -y to agree. Nothing was launched."
        )
    if not is_confirmed(f"Rent {plural(len(rented), 'machine')}?"):
        raise CliError("Nothing was launched.")


_WAYS = "fixed, latest, latest:PACKAGE, branch, or git+URL@BRANCH"


def read_selector(text: str, *, prereleases: bool = False) -> SubjectSelector:
    """Parse a subject selector. Raises CliError."""
    if text.startswith("git+"):
        found = _from_git(text.removeprefix("git+"))
    else:
        kind, _, package = text.partition(":")
        if kind not in tuple(SubjectKind) or (package and kind != SubjectKind.LATEST):
            raise CliError(f"--subject {text}: say {_WAYS}", code=USAGE)
        found = SubjectSelector(kind=SubjectKind(kind), package=package, prereleases=prereleases)
    if prereleases and found.kind is not SubjectKind.LATEST:
        raise CliError("--pre goes with --subject latest", code=USAGE)
    return found


def _from_git(text: str) -> SubjectSelector:
    url, _, branch = text.rpartition("@")
    if not url or not branch or ":" in branch:
        raise CliError(f"--subject git+{text}: say git+URL@BRANCH", code=USAGE)
    return SubjectSelector(kind=SubjectKind.BRANCH, url=url, branch=branch)


HEADER = {"apiVersion": "seatrial/v1", "kind": "Matrix"}
Document = dict[str, object]


def with_overrides(matrix: Matrix, settings: Sequence[str]) -> Document:
    """Return the matrix as a document, with overrides applied in order.

    Raises CliError for a setting that is not ``platform.field=value`` or names no field.
    """
    document = {**HEADER, **_plain(asdict(matrix))}
    for setting in settings:
        _apply(matrix, document, setting)
    return document


def _apply(matrix: Matrix, document: Document, setting: str) -> None:
    target, equals, value = setting.partition("=")
    platform_id, _, path = target.partition(".")
    if not (equals and platform_id and path):
        raise CliError(f"--set {setting}: write it as platform.field=value")
    ids = [platform.id for platform in matrix.platforms]
    if platform_id not in ids:
        said = f"the matrix has no platform {platform_id!r}{nearest(platform_id, ids)}"
        raise CliError(f"--set {setting}: {said}")
    place = cast(list[Document], document["platforms"])[ids.index(platform_id)]
    shape: type[object] | None = Platform
    *parents, last = path.split(".")
    for name in parents:
        hint = _hint(shape, name, setting)
        shape = _dataclass_in(hint)
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            raise CliError(f"--set {setting}: {name} has no keys of its own")
        place = inner
    place[last] = _typed(value, _hint(shape, last, setting), setting)


def _hint(shape: type[object] | None, name: str, setting: str) -> object:
    """Return the type of a field; any type within a free mapping."""
    if shape is None:
        return str
    names = [f.name for f in fields(shape)]  # type: ignore[arg-type]  # only dataclasses come here
    if name == "id" or name not in names:
        names.remove("id") if "id" in names else None
        said = "cannot be changed" if name == "id" else f"is no key{nearest(name, names)}"
        raise CliError(f"--set {setting}: {name!r} {said}")
    hint: object = get_type_hints(shape)[name]
    return hint


def _dataclass_in(hint: object) -> type[object] | None:
    found = [one for one in _alternatives(hint) if isinstance(one, type) and is_dataclass(one)]
    return found[0] if found else None


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _typed(value: str, hint: object, setting: str) -> object:
    """Parse text as the field's type; other errors are left to the schema."""
    kinds = _alternatives(hint)
    if bool in kinds:
        if value not in ("true", "false"):
            raise CliError(f"--set {setting}: write true or false")
        return value == "true"
    if int in kinds:
        try:
            return int(value)
        except ValueError:
            raise CliError(f"--set {setting}: {value!r} is no whole number") from None
    lists = any(get_origin(kind) is tuple for kind in kinds)
    if lists and ("," in value or not _takes_text(kinds, value)):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _takes_text(kinds: tuple[object, ...], value: str) -> bool:
    """Return whether the field accepts a single text, and not only a list."""
    return str in kinds or any(value in get_args(kind) for kind in kinds)


def _plain(value: Mapping[str, object]) -> Document:
    """Return plain JSON values without unset fields."""
    return {name: _jsonable(inner) for name, inner in value.items() if inner is not None}


def _jsonable(value: object) -> object:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, tuple | list):
        return [_jsonable(one) for one in value]
    return str(value) if isinstance(value, Decimal) else value


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """A baseline file to upload."""

    digest: str
    path: Path
    is_payload: bool
    """Whether the file is a payload's archive instead of a wheel."""
    commit: str | None = None
    """Commit of its revision, if it was built from one."""


def find_baseline(
    wiring: Wiring, matrix: Matrix, *, base: Path, scratch: Path
) -> BaselineFile | None:
    """Find the baseline below `base`, or build it in `scratch`; None for a package or none.

    Raises RefusedError and InvalidDocumentError.
    """
    baseline = matrix.baseline
    if baseline is None:
        return None
    own = scratch / "baseline"
    own.mkdir()
    if baseline.payload is not None:
        folder = base / baseline.payload.path
        if not folder.exists():
            raise RefusedError(f"there is no {folder}")
        packed = wiring.pack(folder, own)
        return BaselineFile(packed.digest, packed.path, is_payload=True)
    wheel = wiring.subject(baseline.as_subject(matrix.subject.name), base=base, scratch=own)
    if wheel is None:
        return None
    return BaselineFile(wheel.digest, wheel.path, is_payload=False, commit=wheel.commit)


BUILTIN = "builtin"
_SHA = re.compile("[0-9a-f]{7,64}")
_MATRIX_LIMIT_BYTES = 1 << 20
_SHOWN_FROM_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """A launch order after local validation."""

    file: str
    """The matrix file as given, for messages."""
    matrix: Matrix
    source: Source
    payload: PackedPayload | None
    """The packed payload; None for the built-in one."""
    subject: SubjectWheel | None
    """The subject's wheel; None for a subject without one."""
    hold_minutes: float = 0.0
    """Minutes for which the machine of a cell that does not pass is held."""
    reruns: int = 0
    """Number of unchanged retests of a failed test."""
    diagnose: bool = False
    """Whether root causes of failed tests are diagnosed."""
    reuse_hours: float | None = None
    """Maximum age in hours of evidence to reuse; None reuses none."""
    baseline: BaselineFile | None = None
    """The baseline's file; None without one."""
    commit: Commit = Commit()
    """The tested commit; empty if it is unknown."""
    untrusted: bool = False
    """Whether the code is untrusted."""

    @property
    def body(self) -> dict[str, object]:
        """Return the JSON body of the request that launches the run."""
        held = {"hold_minutes": self.hold_minutes} if self.hold_minutes else {}
        reused = {"reuse_hours": self.reuse_hours} if self.reuse_hours is not None else {}
        return {
            "matrix": self.source,
            "name": Path(self.file).name,
            "payload": self.payload.digest if self.payload else BUILTIN,
            "subject": self.subject.digest if self.subject else None,
            **({"baseline": self.baseline.digest} if self.baseline else {}),
            **({"commit": asdict(self.commit)} if self.commit else {}),
            **({"untrusted": True} if self.untrusted else {}),
            **held,
            **reused,
            **self._retests(),
        }

    def _retests(self) -> dict[str, object]:
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
    untrusted: Path | None = None,
) -> Order:
    """Read and validate a matrix and its files. Raises CliError.

    Args:
        session: The command.
        file: The matrix.
        settings: Overrides of it.
        scratch: An empty folder, for the payload's archive.
        with_subject: Whether the subject's wheel is found or built now.
        untrusted: A folder with untrusted code in the layout of the present folder. Files and wheel
            come from it; matrix, payload.toml and baseline come from the present folder.
    """
    documents = session.wiring.documents
    try:
        source, matrix = _read_matrix(documents, file, settings)
        place = _place(file, untrusted)
        packed = _pack(session, file, matrix, source, scratch, place=place)
        if packed is not None:
            _within(untrusted, _payload_folder(place, matrix) / packed.manifest.root)
        _check(session, file, source, packed)
        subject = None
        if with_subject:
            subject = _subject(session, file, matrix, source, scratch, place=place)
        if subject is not None and matrix.subject.wheel:
            _within(untrusted, subject.path)
        baseline = _baseline(session, file, matrix, source, scratch)
    except InvalidDocumentError as error:
        raise document_error(error) from None
    known = _with_commits(session, matrix, subject, baseline)
    if known != matrix:
        source = documents.matrix_document(known)
    return Order(
        str(file),
        known,
        source,
        packed,
        subject,
        baseline=baseline,
        commit=_commit(session, place, known),
        untrusted=untrusted is not None,
    )


def _read_matrix(
    documents: Documents, file: Path, settings: Sequence[str]
) -> tuple[Source, Matrix]:
    """Return a matrix with its overrides, as a source and as a parsed matrix."""
    source: Source = read_document(file, "matrix", limit_bytes=_MATRIX_LIMIT_BYTES)
    if not settings:
        return source, documents.sketch_matrix(source, str(file))
    source = with_overrides(documents.read_matrix(source, str(file)), settings)
    return source, documents.read_matrix(source, f"{file} with --set")


def _place(matrix: Path, tree: Path | None) -> Path:
    """Return the folder of a matrix, or the folder at the same path in an untrusted tree.

    Raises CliError.
    """
    if tree is None:
        return matrix.parent
    here, folder = Path.cwd().resolve(), matrix.parent.resolve()
    if not folder.is_relative_to(here):
        raise CliError(f"--untrusted: {matrix} is not below {here}: start it above the matrix")
    return tree / folder.relative_to(here)


def _within(tree: Path | None, path: Path) -> None:
    """Raise CliError if the path, or a link in it, leads out of the tree."""
    if tree is not None and not path.resolve().is_relative_to(tree.resolve()):
        raise CliError(f"--untrusted: {path} is not in {tree}: nothing of this computer is sent")


def _payload_folder(place: Path, matrix: Matrix) -> Path:
    return place if isinstance(matrix.payload, str) else place / matrix.payload.path


def _check(session: Session, file: Path, source: Source, packed: PackedPayload | None) -> None:
    documents = session.wiring.documents
    if session.settings.url is not None:
        # A controller elsewhere may have other providers, and another payload built in.
        documents.read_matrix(source, str(file))
        return
    manifest = packed.manifest if packed else _builtin_manifest(session)
    traits = session.wiring.traits
    documents.check_matrix(source, str(file), manifest=manifest, providers=traits)


def _commit(session: Session, place: Path, matrix: Matrix) -> Commit:
    """Return the commit of the payload's checkout or of the CI; empty for a subject from git."""
    if matrix.subject.git is not None:
        return Commit()
    is_own = not isinstance(matrix.payload, str)
    return session.wiring.commit(_payload_folder(place, matrix) if is_own else None)


def _with_commits(
    session: Session, matrix: Matrix, subject: SubjectWheel | None, baseline: BaselineFile | None
) -> Matrix:
    """Return the matrix with the commits of its built wheels, since branches move."""
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


def stated_commit(
    commit: Commit, *, sha: str | None, branch: str | None, author: str | None
) -> Commit:
    """Return the detected commit with the given values. Raises CliError.

    Detected values belong to the detected commit: none is kept for another one.
    """
    if sha is not None and not _SHA.fullmatch(sha.lower()):
        raise CliError(f"--commit {sha}: write 7 to 64 hexadecimal digits", code=USAGE)
    same = sha is None or commit.sha.startswith(sha.lower())
    base = commit if same else Commit(sha=(sha or "").lower())
    return replace(
        base,
        branch=base.branch if branch is None else branch,
        author=base.author if author is None else author,
    )


def upload(session: Session, client: Seatrial, order: Order) -> None:
    """Upload the files of the order that the controller does not have yet."""
    packed = order.payload
    if packed is not None and not client.has_payload(packed.digest):
        _send(session, client.upload_payload, packed.digest, packed.path, "payload")
    baseline = order.baseline
    if baseline is not None and not baseline.is_payload:
        _send(session, client.upload_subject, baseline.digest, baseline.path, "baseline")
    elif baseline is not None and not client.has_payload(baseline.digest):
        _send(session, client.upload_payload, baseline.digest, baseline.path, "baseline")
    wheel = order.subject
    if wheel is not None:
        _send(session, client.upload_subject, wheel.digest, wheel.path, wheel.path.name)


def _pack(
    session: Session, file: Path, matrix: Matrix, source: Source, scratch: Path, *, place: Path
) -> PackedPayload | None:
    """Pack the payload; `place` is the matrix's folder, or what stands for it in another tree."""
    if matrix.payload == BUILTIN or isinstance(matrix.payload, str):
        return None
    own, folder = (_payload_folder(one, matrix) for one in (file.parent, place))
    if not folder.exists():
        _refuse(session, file, source, ("payload", "path"), f"there is no {folder}")
    try:
        packed = session.wiring.pack(folder, scratch, manifest_from=None if folder == own else own)
    except RefusedError as error:
        raise CliError(str(error)) from None
    tell_unshipped(session, packed)
    return packed


def tell_unshipped(session: Session, packed: PackedPayload) -> None:
    """Print notes about files that the payload's files or tests need and that are not shipped."""
    for name in packed.unshipped:
        session.say(
            f"note: the payload imports {name}, which is not shipped, because git ignores it."
            f" Fix: `git add --force {name}`, or `!{name}` in .gitignore"
        )
    if packed.unshipped_tests:
        one = "{} has the name of a test and is not shipped, because git ignores it: no job runs it"
        many = "{} have names of tests and are not shipped, because git ignores them: no job runs"
        session.say(_unshipped(packed.unshipped_tests, one, f"{many} them"))
    if packed.unshipped_data:
        one = "{} lies among tests and is not shipped, because git ignores it: no test can read it"
        many = "{} lie among tests and are not shipped, because git ignores them: no test can read"
        session.say(_unshipped(packed.unshipped_data, one, f"{many} them"))
    for text in packed.missing_tests:
        session.say(f"note: payload.toml: {text}; pytest ends with an error if no job writes it")


def _unshipped(names: Sequence[str], one: str, many: str) -> str:
    shown, more = names[:_TESTS_SHOWN], len(names) - _TESTS_SHOWN
    told = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    added = " ".join(map(shlex.quote, shown))
    fact = (one if len(names) == 1 else many).format(told)
    return f"note: {fact}. Fix: `git add --force {added}`, or name it in `exclude` of payload.toml"


def _builtin_manifest(session: Session) -> Manifest:
    path = session.wiring.builtin_payload / "payload.toml"
    return session.wiring.documents.read_manifest(path.read_text(encoding="utf-8"), str(path))


def _subject(
    session: Session, file: Path, matrix: Matrix, source: Source, scratch: Path, *, place: Path
) -> SubjectWheel | None:
    base = place if matrix.subject.wheel else file.parent
    try:
        found = session.wiring.subject(matrix.subject, base=base, scratch=scratch)
    except RefusedError as error:
        _refuse(session, file, source, ("subject", matrix.subject.source), str(error))
        return None
    if found is not None and matrix.subject.wheel:
        _see_age(session, place, matrix, found.path)
    return found


def _see_age(session: Session, place: Path, matrix: Matrix, wheel: Path) -> None:
    """Print a note if the wheel does not match the project's present source. Raises CliError."""
    # Only a wheel beside its project needs them, and every command pays for the imports above.
    from orchestrator.cli.starter.project_sources import (  # noqa: PLC0415
        read_sources,
        stale_wheel_notes,
    )

    for note in stale_wheel_notes(read_sources(_payload_folder(place, matrix)), wheel):
        session.say(f"note: {note}")


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
    """Raise InvalidDocumentError with the position in the file."""
    session.wiring.documents.refuse_matrix(source, str(file), [Problem(path, message)])


def _unseen(gone: int) -> None:
    """Ignore the progress of uploads if it is not displayed."""


_Put = Callable[[str, Path, Callable[[int], None]], object]
"""Uploads a file by its digest."""


def _send(session: Session, put: _Put, digest: str, file: Path, what: str) -> None:
    total = file.stat().st_size
    if total < _SHOWN_FROM_BYTES or not session.is_live:
        session.say(f"uploading the {what} ({size(total)})")
        put(digest, file, _unseen)
        return
    columns = (TextColumn("uploading {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=session.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        put(digest, file, lambda gone: progress.update(task, completed=gone))
