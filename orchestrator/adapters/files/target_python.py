"""A machine's Python in terms of the packaging standards: tags, markers, installed packages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from platform import python_version

from packaging.markers import Environment as Markers
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.adapters.files.requirements import shown
from orchestrator.application.ports.wheels import Choice, WheelsError
from orchestrator.domain.manifest import Manifest, PythonChoice
from orchestrator.domain.reuse_inputs import Interpreter

OLDEST_PYTHON = Version("3.9")
_OLDEST_GLIBC = {"x86_64": 5, "i686": 5}
_LEGACY = (("manylinux1", 5), ("manylinux2010", 12), ("manylinux2014", 17))


def interpreters(probe: Mapping[str, object]) -> Iterator[tuple[Interpreter | None, str]]:
    """Yield each interpreter of a probe, or the reason why it cannot be used."""
    found = probe.get("interpreters")
    for raw in found if isinstance(found, list) else ():
        if isinstance(raw, dict):
            yield _interpreter(raw, probe)


def _interpreter(
    raw: Mapping[str, object], probe: Mapping[str, object]
) -> tuple[Interpreter | None, str]:
    name = str(raw.get("path") or raw.get("candidate"))
    if raw.get("error"):
        return None, f"{name}: {raw['error']}"
    if not raw.get("has_venv"):
        return None, f"{name} cannot make virtual environments (its venv module is missing)"
    version = _version(str(raw.get("version")))
    if version is None or version < OLDEST_PYTHON:
        return None, f"{name} is Python {raw.get('version')}; {OLDEST_PYTHON} is the oldest taken"
    packages, libc, pip = raw.get("packages"), probe.get("libc"), raw.get("pip")
    interpreter = Interpreter(
        path=str(raw.get("path")),
        version=str(raw.get("version")),
        implementation=str(raw.get("implementation")),
        machine=str(probe.get("machine")),
        libc=(str(libc[0]), str(libc[1])) if isinstance(libc, list) and len(libc) == 2 else None,
        packages=_packages(packages) if isinstance(packages, dict) else {},
        pip=str(pip) if pip else None,
        kernel=str(probe.get("kernel") or ""),
        records=str(raw.get("records") or ""),
    )
    return interpreter, ""


def _packages(raw: Mapping[str, object]) -> dict[str, str]:
    return {canonicalize_name(str(name)): str(version) for name, version in raw.items()}


def choose(probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
    """See the port. What the environment itself installs is not required of the interpreter."""
    asked = manifest.candidates(environment)
    if asked != PythonChoice().candidates and not _found(probe, asked):
        none = f"the machine has none of {', '.join(asked)}, which payload.toml names"
        return Choice(None, f"{none}: install one of them there, or name one that it has")
    added = manifest.environment(environment)
    installed = {canonicalize_name(Requirement(text).name) for text in (added.pip if added else ())}
    required = [
        requirement
        for requirement in map(Requirement, manifest.python.requires)
        if canonicalize_name(requirement.name) not in installed
    ]
    reasons = []
    for interpreter, unusable in interpreters(probe):
        reason = unusable if interpreter is None else _lacks(interpreter, required)
        if not reason:
            return Choice(interpreter)
        reasons.append(reason)
    none = f"the machine has none of {', '.join(asked)}"
    return Choice(None, "; ".join(dict.fromkeys(reasons)) or none)


_ASSUMED_LIBC = ("glibc", "2.35")
_NAMED_VERSION = re.compile(r"python(3\.\d{1,2})")


def assumed(manifest: Manifest, environment: str, *, torch: str) -> Interpreter:
    """See the port."""
    named = map(_NAMED_VERSION.search, manifest.candidates(environment))
    version = next((found[1] for found in named if found), "")
    added = manifest.environment(environment)
    installed = {canonicalize_name(Requirement(text).name) for text in (added.pip if added else ())}
    packages = {"torch": torch} if torch else {}
    for requirement in map(Requirement, manifest.python.requires):
        name = canonicalize_name(requirement.name)
        if name not in installed | packages.keys():
            packages[name] = _lowest(requirement)
    return Interpreter(
        path=f"python{version or 3}",
        version=f"{version}.0" if version else python_version(),
        implementation="cpython",
        machine="x86_64",
        libc=_ASSUMED_LIBC,
        packages=packages,
        pip="",
    )


def _lowest(requirement: Requirement) -> str:
    """Return a version that meets a requirement: the lowest that it names, or 0."""
    named = sorted(Version(each.version.removesuffix(".*")) for each in requirement.specifier)
    return next((str(v) for v in named if requirement.specifier.contains(v)), "0")


def _found(probe: Mapping[str, object], requested: Sequence[str]) -> bool:
    """Return whether the machine has one of the requested Pythons; no other may replace them."""
    found = probe.get("interpreters")
    raws = [raw for raw in found if isinstance(raw, dict)] if isinstance(found, list) else []
    return any(raw.get("candidate") in requested and raw.get("path") for raw in raws)


def _lacks(interpreter: Interpreter, required: list[Requirement]) -> str:
    for requirement in required:
        if not applies(requirement, interpreter) or is_met(requirement, interpreter.packages):
            continue
        version = interpreter.packages.get(canonicalize_name(requirement.name))
        has = f"{requirement.name} {version}" if version else f"no {requirement.name}"
        return f"{interpreter.path} has {has}, and the payload requires {shown(requirement)}"
    return ""


def is_met(requirement: Requirement, packages: Mapping[str, str]) -> bool:
    """Return whether installed packages meet a requirement; ``2.13.0+cpu`` meets ``>=2.13``."""
    version = _version(packages.get(canonicalize_name(requirement.name), ""))
    if version is None or requirement.url:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def applies(
    requirement: Requirement, target: Interpreter, extras: frozenset[str] = frozenset()
) -> bool:
    """Return whether the requirement's marker is true on the machine for any of the extras."""
    if requirement.marker is None:
        return True
    markers = _markers(target)
    return any(
        requirement.marker.evaluate({**markers, "extra": extra}) for extra in (extras or {""})
    )


def _markers(target: Interpreter) -> dict[str, str]:
    version = Version(target.version)
    known: Markers = {
        "implementation_name": target.implementation,
        "implementation_version": target.version,
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_release": target.kernel,
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": target.version,
        "platform_python_implementation": "CPython",
        "python_version": f"{version.major}.{version.minor}",
        "sys_platform": "linux",
    }
    return {name: str(value) for name, value in known.items()}


def platforms(target: Interpreter) -> list[str]:
    """Return the platform tags that the machine accepts, newest first. Raises WheelsError."""
    if target.implementation != "cpython" or target.libc is None:
        raise WheelsError(
            f"{target.path} is {target.implementation} on {target.platform}: wheels can only be"
            " found for CPython on Linux"
        )
    name, version = target.libc
    machine = target.machine
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        raise WheelsError(f"{target.path}: {version!r} is no version of {name}") from None
    if name == "musl":
        return [f"musllinux_{major}_{n}_{machine}" for n in range(minor, -1, -1)] + [
            f"linux_{machine}"
        ]
    oldest = _OLDEST_GLIBC.get(machine, 17)
    tags = [f"manylinux_2_{n}_{machine}" for n in range(minor, oldest - 1, -1)]
    tags += [f"{word}_{machine}" for word, n in reversed(_LEGACY) if oldest <= n <= minor]
    return [*tags, f"linux_{machine}"]


def tags(target: Interpreter) -> tuple[Tag, ...]:
    """Return every tag whose wheels the interpreter can use, the best first."""
    version = Version(target.version)
    accepted = platforms(target)
    python = (version.major, version.minor)
    name = f"cp{version.major}{version.minor}"
    return (
        *cpython_tags(python, abis=[name], platforms=accepted),
        *compatible_tags(python, interpreter=name, platforms=accepted),
    )


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
