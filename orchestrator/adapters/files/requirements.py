"""Validates pip requirements, and checks which are met."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.domain.document_problems import Path, Problem
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import Matrix, Subject


def requirement_fault(text: str) -> str | None:
    """Return why a text is not an accepted requirement, or None."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        return f"{text!r} is no requirement such as 'name>=1.2': {reason}"
    return address_fault(requirement)


def address_fault(requirement: Requirement) -> str | None:
    """Return why the address of a requirement is refused, or None.

    For anything but a wheel pip runs its code to read the metadata, and a file address would open
    files of the controller.
    """
    if requirement.url is None:
        return None
    parts = urlsplit(requirement.url)
    if parts.scheme == "https" and parts.path.endswith(".whl"):
        return None
    return (
        f"{str(requirement)!r} must name a wheel at an https:// address: files of the controller"
        " are not taken, and nothing is built of sources"
    )


def manifest_faults(manifest: Manifest) -> Iterator[Problem]:
    """Yield the requirements of a payload that installers cannot parse."""
    places: list[tuple[Path, tuple[str, ...]]] = [
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
            if not link.startswith("https://"):
                message = f"{link!r} must be an https:// address"
                yield Problem(("env", name, "find_links", index), message)


def matrix_faults(matrix: Matrix) -> Iterator[Problem]:
    """Yield the pinned requirements of a matrix that are invalid or pin another distribution."""
    if matrix.baseline and matrix.baseline.package:
        path: Path = ("baseline", "package")
        faults = list(_pin_faults(matrix.baseline.package, path))
        yield from faults or _name_faults(matrix.baseline.package, matrix.subject, path)
    if matrix.subject.package:
        path = ("subject", "package")
        faults = list(_pin_faults(matrix.subject.package, path))
        yield from faults or _subject_faults(matrix.subject, path)


def _pin_faults(text: str, path: Path) -> Iterator[Problem]:
    fault = requirement_fault(text)
    if fault:
        yield Problem(path, fault)
    elif pinned(Requirement(text)) is None:
        yield Problem(path, f"{text!r} must be pinned, as in 'name==1.2'")


def _subject_faults(subject: Subject, path: Path) -> Iterator[Problem]:
    requirement = Requirement(subject.package or "")
    faults = list(_name_faults(subject.package or "", subject, path))
    yield from faults
    if not faults and not same_version(pinned(requirement) or "", subject.version):
        message = f"pins {pinned(requirement)}, but the subject's version is {subject.version}"
        yield Problem(path, message)


def _name_faults(text: str, subject: Subject, path: Path) -> Iterator[Problem]:
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
