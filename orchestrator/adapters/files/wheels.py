"""The wheelhouse: wheels for a machine, resolved on the controller and stored by digest."""

from __future__ import annotations

import fcntl
import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.adapters.files import target_python
from orchestrator.adapters.files.pip import (
    DependencyResolver,
    Outward,
    SizeResolver,
    anywhere,
)
from orchestrator.adapters.files.requirements import WheelFile, pinned, read_wheel, same_version
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.application.ports.clock import Clock
from orchestrator.application.ports.wheels import (
    Choice,
    Opener,
    Resolution,
    WheelsError,
    WheelSizes,
)
from orchestrator.domain.launch_plan import SHIPPED_LIMIT_BYTES, over_limit
from orchestrator.domain.manifest import Environment, Manifest
from orchestrator.domain.matrix import Subject
from orchestrator.domain.reuse_inputs import Interpreter

_UNKNOWN_S = 300.0
"""Seconds until an unknown size is requested from the index again."""


@dataclass(frozen=True, slots=True)
class _Job:
    """The inputs of one resolution."""

    target: Interpreter
    missing: tuple[Requirement, ...]
    held: tuple[Requirement, ...]
    """The payload's requirements that the interpreter meets; the result must meet them too."""
    subject: Requirement | None
    wheel: Path | None
    find_links: tuple[str, ...]

    def key(self, day: str) -> str:
        """Return the cache key: equal inputs share a result for one day, as indexes change."""
        wheel = hashlib.sha256(self.wheel.read_bytes()).hexdigest() if self.wheel else ""
        target = {**asdict(self.target), "path": ""}
        missing, held = ([str(each) for each in some] for some in (self.missing, self.held))
        parts = [target, missing, held, str(self.subject), wheel]
        return hashlib.sha256(json.dumps([*parts, self.find_links, day]).encode()).hexdigest()


class Wheelhouse:
    """Implements `orchestrator.application.ports.wheels.Wheels` below a folder."""

    def __init__(self, folder: Path, *, clock: Clock, outward: Outward = anywhere) -> None:
        """`outward` limits the addresses that pip may reach."""
        self._outward = outward
        self._folder = folder
        self._clock = clock

    def choose(self, probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
        """Return the first probed interpreter that meets the payload's requirements."""
        return target_python.choose(probe, manifest, environment)

    def assume(self, manifest: Manifest, environment: str, *, torch: str) -> Interpreter:
        """See the port."""
        return target_python.assumed(manifest, environment, torch=torch)

    def open(self, digest: str) -> Iterator[bytes]:
        """Open a wheelhouse's archive (an uncompressed tar of wheels). Raises WheelsError."""
        path = self._archive(digest)
        if not path.is_file():
            message = f"the wheelhouse {digest} is not kept here any more: resolve it again"
            raise WheelsError(message)
        return file_chunks(path)

    def resolve(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
        requires: Sequence[str] = (),
        limit_bytes: int = SHIPPED_LIMIT_BYTES,
    ) -> Resolution:
        """Resolve and store all missing packages. May take minutes. Raises WheelsError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            given = _given(wheel, subject, Path(work))
            subject = _versioned(subject, given)
            job = _job(interpreter, environment, requires, subject, given)
            if not job.missing and job.subject is None:
                return Resolution((), ())
            return self._resolve(job, subject, given, environment, Path(work), limit_bytes)

    def sizes(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
        requires: Sequence[str] = (),
    ) -> WheelSizes:
        """Return the sizes of the wheels that `resolve` would download. Raises WheelsError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            given = _given(wheel, subject, Path(work))
            job = _job(interpreter, environment, requires, _versioned(subject, given), given)
            if not job.missing and job.subject is None:
                return WheelSizes({}, 0, {})
            key = job.key(self._clock.now().date().isoformat())
            note = self._folder / f"{key}.known-sizes.json"
            with _locked(self._folder / f"{key}.sizes.lock"):
                at = self._clock.now().timestamp()
                if note.is_file():
                    noted_at, known = json.loads(note.read_text(encoding="utf-8"))
                    if not known["unknown"] or abs(at - noted_at) < _UNKNOWN_S:
                        return WheelSizes(**known)
                found = _sizes(job, given, Path(work), self._outward)
                fresh = Path(work) / "sizes.json"
                fresh.write_text(json.dumps([at, asdict(found)]), encoding="utf-8")
                fresh.rename(note)
                return found

    def _resolve(
        self,
        job: _Job,
        subject: Subject,
        given: WheelFile | None,
        environment: Environment,
        work: Path,
        limit_bytes: int,
    ) -> Resolution:
        digest: str | None = None
        packages: Mapping[str, str] = {}
        note = ""
        try:
            digest, packages = self._house(job, given, work, limit_bytes)
            size_bytes = self._archive(digest).stat().st_size
            if size_bytes > limit_bytes:  # it was made under a higher limit
                raise WheelsError(over_limit(size_bytes, limit_bytes))
        except WheelsError as error:
            if not environment.index or given is not None:
                raise
            digest, packages = None, {}
            note = f"the machine installs from its own index, because here {error}"
        return Resolution(
            requirements=tuple(str(requirement) for requirement in job.missing),
            constraints=_constraints(job, packages),
            wheels=digest,
            size_bytes=self._archive(digest).stat().st_size if digest else 0,
            packages=packages,
            subject=_plan_subject(job.subject, subject),
            note=note,
        )

    def _house(
        self, job: _Job, given: WheelFile | None, work: Path, limit_bytes: int
    ) -> tuple[str, Mapping[str, str]]:
        key = job.key(self._clock.now().date().isoformat())
        note = self._folder / f"{key}.json"
        with _locked(self._folder / f"{key}.lock"):
            known = _read_note(note)
            if known is not None and self._archive(known[0]).is_file():
                return known
            wheels = _closure(job, given, work, self._outward, limit_bytes)
            digest = self._keep(wheels, work)
            packages = {name: str(wheel.version) for name, wheel in sorted(wheels.items())}
            fresh = work / "note.json"
            fresh.write_text(json.dumps([digest, packages]), encoding="utf-8")
            fresh.rename(note)
            return digest, packages

    def _keep(self, wheels: Mapping[str, WheelFile], work: Path) -> str:
        packed = work / "wheels.tar"
        with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as archive:
            for wheel in sorted(wheels.values(), key=lambda each: each.path.name):
                entry = tarfile.TarInfo(wheel.path.name)
                entry.size, entry.mode = wheel.path.stat().st_size, 0o644
                with wheel.path.open("rb") as file:
                    archive.addfile(entry, file)
        with packed.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        packed.rename(self._archive(digest))
        return digest

    def _archive(self, digest: str) -> Path:
        return self._folder / f"{digest}.tar"


def _job(
    target: Interpreter,
    environment: Environment,
    requires: Sequence[str],
    subject: Subject,
    given: WheelFile | None,
) -> _Job:
    return _Job(
        target=target,
        missing=_missing(target, environment),
        held=_held(target, environment, requires),
        subject=_subject_requirement(subject),
        wheel=given.path if given else None,
        find_links=environment.find_links,
    )


def _closure(
    job: _Job, given: WheelFile | None, work: Path, outward: Outward, limit_bytes: int
) -> dict[str, WheelFile]:
    fetched = work / "fetched"
    fetched.mkdir()
    closure = DependencyResolver(
        job.target, fetched, job.find_links, outward=outward, limit_bytes=limit_bytes
    )
    _grow(closure, job, given)
    return {str(name): wheel for name, wheel in closure.wheels.items()}


def _sizes(job: _Job, given: WheelFile | None, work: Path, outward: Outward) -> WheelSizes:
    closure = SizeResolver(job.target, work, job.find_links, outward=outward)
    _grow(closure, job, given)
    return WheelSizes(
        {name: str(closure.wheels[name].version) for name in sorted(closure.sizes)},
        sum(size for size in closure.sizes.values() if size is not None),
        {str(name): why for name, why in sorted(closure.unknown.items())},
    )


def _grow(closure: DependencyResolver, job: _Job, given: WheelFile | None) -> None:
    """Add the requirements of the job, and resolve all dependencies. Raises WheelsError."""
    if given is not None:
        closure.give(given)
    elif job.subject is not None:
        closure.want(job.subject)
    for requirement in job.missing:
        closure.want(requirement, "the payload")
    for requirement in job.held:
        closure.hold(requirement, "the payload")
    if job.target.pip is None:
        closure.want(Requirement("pip"))
    closure.grow()


def _missing(target: Interpreter, environment: Environment) -> tuple[Requirement, ...]:
    requirements = [Requirement(text) for text in environment.pip]
    return tuple(
        requirement
        for requirement in requirements
        if target_python.applies(requirement, target)
        and (requirement.extras or not target_python.is_met(requirement, target.packages))
    )


def _held(
    target: Interpreter, environment: Environment, requires: Sequence[str]
) -> tuple[Requirement, ...]:
    """Return the requirements with a version limit that the interpreter already meets."""
    own = [Requirement(text) for text in environment.pip]
    names = {canonicalize_name(requirement.name) for requirement in own}
    more = (Requirement(text) for text in requires)
    stated = [*own, *(each for each in more if canonicalize_name(each.name) not in names)]
    return tuple(
        Requirement(f"{each.name}{each.specifier}")
        for each in stated
        if each.specifier
        and target_python.applies(each, target)
        and target_python.is_met(each, target.packages)
    )


def _versioned(subject: Subject, given: WheelFile | None) -> Subject:
    """Return a baseline with the version of its wheel or of its pin."""
    if subject.version or subject.source == "payload":
        return subject
    pin = pinned(Requirement(subject.package)) if subject.package else None
    return replace(subject, version=str(given.version) if given else pin or "")


def _subject_requirement(subject: Subject) -> Requirement | None:
    if subject.source == "payload":
        return None
    return Requirement(subject.package or f"{subject.name}=={subject.version}")


def _plan_subject(requirement: Requirement | None, subject: Subject) -> Mapping[str, str] | None:
    if requirement is None:
        return None
    return {
        "distribution": requirement.name,
        "version": subject.version,
        "requirement": str(requirement),
    }


def _constraints(job: _Job, packages: Mapping[str, str]) -> tuple[str, ...]:
    replaced = {*packages, *(canonicalize_name(requirement.name) for requirement in job.missing)}
    if job.subject is not None:
        replaced.add(canonicalize_name(job.subject.name))
    kept = (
        f"{name}=={version}"
        for name, version in sorted(job.target.packages.items())
        if name not in replaced and _is_version(version)
    )
    held = (str(each) for each in job.held if canonicalize_name(each.name) in replaced)
    return (*kept, *held)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _given(opener: Opener | None, subject: Subject, work: Path) -> WheelFile | None:
    if subject.source not in ("wheel", "git"):
        return None
    if opener is None:
        raise WheelsError(f"the wheel of {subject.name} {subject.version} was not uploaded")
    return _subject_wheel(opener, subject, work)


def _subject_wheel(opener: Opener, subject: Subject, work: Path) -> WheelFile:
    path = work / "subject.whl"
    with path.open("wb") as file:
        for chunk in opener():
            file.write(chunk)
    wheel = read_wheel(path)
    check_subject(wheel, subject)
    named = path.rename(work / wheel.filename)
    return read_wheel(named)


def check_subject(wheel: WheelFile, subject: Subject) -> None:
    """Raise WheelsError for another distribution or version than the matrix declares."""
    same_name = wheel.name == canonicalize_name(subject.name)
    any_version = not subject.version  # a baseline's version is read from its wheel
    if not same_name or not (any_version or same_version(str(wheel.version), subject.version)):
        wanted = f"{subject.name} {subject.version}".strip()
        raise WheelsError(
            f"the wheel is {wheel.distribution} {wheel.version}, but the matrix's subject is"
            f" {wanted}"
        )


def _read_note(path: Path) -> tuple[str, Mapping[str, str]] | None:
    try:
        digest, packages = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return digest, packages


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock one resolution, so that concurrent resolvers reuse its result."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
