"""Validates pip requirements, and checks which are met."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.application.ports.wheels import (
    WheelsError,
)
from orchestrator.domain.document_problems import Path as ProblemPath
from orchestrator.domain.document_problems import Problem
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import Matrix, Subject

_USERINFO = re.compile(r"(?<=://)[^/\s]*@")
_LOGIN = re.compile(r"[^\s'\"]*@")


def shown(requirement: Requirement | str) -> str:
    """Return the text of a requirement without the credentials of its address."""
    return _USERINFO.sub("", str(requirement))


def requirement_fault(text: str) -> str | None:
    """Return why a text is not an accepted requirement, or None."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        return f"{shown(text)!r} is no requirement such as 'name>=1.2': {reason}"
    return address_fault(requirement)


def address_fault(requirement: Requirement) -> str | None:
    """Return why the address of a requirement is refused, or None.

    Only wheels are accepted: for a source archive pip would run the package's code to read its
    metadata. A file address is refused, because it would open files of the controller.
    """
    if requirement.url is None:
        return None
    try:
        parts = urlsplit(requirement.url)
    except ValueError as error:
        return f"{shown(requirement)!r} names no valid address: {_LOGIN.sub('', str(error))}"
    if parts.scheme == "https" and parts.path.endswith(".whl"):
        return None
    return (
        f"{shown(requirement)!r} must name a wheel at an https:// address: files of the controller"
        " are not taken, and nothing is built of sources"
    )


def manifest_faults(manifest: Manifest) -> Iterator[Problem]:
    """Yield the requirements of a payload that installers cannot parse."""
    places: list[tuple[ProblemPath, tuple[str, ...]]] = [
        (("env", name, "pip"), environment.pip) for name, environment in manifest.env.items()
    ]
    places.append((("setup", "pip"), manifest.setup.pip if manifest.setup else ()))
    places.append((("python", "requires"), manifest.python.requires))
    for path, requirements in places:
        for index, text in enumerate(requirements):
            fault = requirement_fault(text)
            if fault:
                yield Problem((*path, index), fault)
    for name, environment in manifest.env.items():
        for index, link in enumerate(environment.find_links):
            fault = _link_fault(link)
            if fault:
                yield Problem(("env", name, "find_links", index), fault)


def _link_fault(link: str) -> str | None:
    if not link.startswith("https://"):
        return f"{link!r} must be an https:// address"
    try:
        urlsplit(link)
    except ValueError as error:
        return f"{link!r} is no valid address: {error}"
    return None


def matrix_faults(matrix: Matrix) -> Iterator[Problem]:
    """Yield the pinned requirements of a matrix that are invalid or pin another distribution."""
    if matrix.baseline and matrix.baseline.package:
        path: ProblemPath = ("baseline", "package")
        faults = list(_pin_faults(matrix.baseline.package, path))
        yield from faults or _name_faults(matrix.baseline.package, matrix.subject, path)
    if matrix.subject.package:
        path = ("subject", "package")
        faults = list(_pin_faults(matrix.subject.package, path))
        yield from faults or _subject_faults(matrix.subject, path)


def _pin_faults(text: str, path: ProblemPath) -> Iterator[Problem]:
    fault = requirement_fault(text)
    if fault:
        yield Problem(path, fault)
    elif pinned(Requirement(text)) is None:
        yield Problem(path, f"{text!r} must be pinned, as in 'name==1.2'")


def _subject_faults(subject: Subject, path: ProblemPath) -> Iterator[Problem]:
    requirement = Requirement(subject.package or "")
    faults = list(_name_faults(subject.package or "", subject, path))
    yield from faults
    if not faults and not same_version(pinned(requirement) or "", subject.version):
        message = f"pins {pinned(requirement)}, but the subject's version is {subject.version}"
        yield Problem(path, message)


def _name_faults(text: str, subject: Subject, path: ProblemPath) -> Iterator[Problem]:
    name = Requirement(text).name
    if canonicalize_name(name) != canonicalize_name(subject.name):
        yield Problem(path, f"names {name!r}, but the subject is {subject.name!r}")


def pinned(requirement: Requirement) -> str | None:
    """Return the single version that a requirement allows, or None."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "==="):
        return None
    version = specifiers[0].version
    return None if version.endswith(".*") else version


def same_version(one: str, other: str) -> bool:
    """Return whether two spellings are the same version."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


_LARGEST_METADATA_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A wheel on disk, by its metadata instead of its file name."""

    path: Path
    distribution: str
    version: Version
    tags: tuple[Tag, ...]
    requires: tuple[Requirement, ...]

    @property
    def name(self) -> NormalizedName:
        """Name of the distribution as PyPI normalises it: lower case, with hyphens."""
        return canonicalize_name(self.distribution)

    @property
    def filename(self) -> str:
        """The file name that installers expect."""
        axes = [
            ".".join(dict.fromkeys(getattr(tag, axis) for tag in self.tags))
            for axis in ("interpreter", "abi", "platform")
        ]
        if parse_tag("-".join(axes)) != frozenset(self.tags):
            # The tags form no grid, so that no single name contains them all.
            axes = str(self.tags[0]).split("-")
        name = re.sub(r"[-_.]+", "_", self.distribution)
        return f"{name}-{self.version}-{'-'.join(axes)}.whl"


def read_wheel(path: Path) -> WheelFile:
    """Read a wheel's metadata. Raises WheelsError if it is no wheel."""
    try:
        with zipfile.ZipFile(path) as archive:
            metadata, wheel = (_headers(archive, name) for name in ("METADATA", "WHEEL"))
            _member(archive, "RECORD")
        tags = [tag for text in wheel.get_all("Tag", []) for tag in parse_tag(str(text).strip())]
        if not tags:
            raise WheelsError(f"{path.name} is no wheel: it names no tag")
        requires = _requires(metadata)
        version = Version(str(metadata["Version"]))
        return WheelFile(path, str(metadata["Name"]), version, tuple(tags), requires)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError) as error:
        raise WheelsError(f"{path.name} is no wheel: {error}") from None
    except (InvalidVersion, InvalidRequirement, ValueError) as error:
        raise WheelsError(f"{path.name} has unusable metadata: {error}") from None


def requires_in(metadata: str) -> tuple[Requirement, ...]:
    """Return the requirements in a wheel's METADATA. Raises ValueError."""
    return _requires(HeaderParser().parsestr(metadata, headersonly=True))


def _requires(metadata: Message) -> tuple[Requirement, ...]:
    return tuple(Requirement(str(text)) for text in metadata.get_all("Requires-Dist", []))


def _headers(archive: zipfile.ZipFile, name: str) -> Message:
    info = _member(archive, name)
    if info.file_size > _LARGEST_METADATA_BYTES:
        raise ValueError(f"{name} is larger than {_LARGEST_METADATA_BYTES} bytes")
    text = archive.read(info).decode("utf-8", "replace")
    return HeaderParser().parsestr(text, headersonly=True)


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [i for i in archive.infolist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", i.filename)]
    if len(found) != 1:
        raise KeyError(f"it has {len(found)} files *.dist-info/{name}")
    return found[0]
