"""Runs pip and git: which addresses they may reach, and how pip resolves dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from orchestrator.adapters.files.requirements import WheelFile, address_fault, read_wheel
from orchestrator.adapters.files.target_python import applies, is_met, platforms, tags
from orchestrator.adapters.guarded_http import Resolve, addresses_of
from orchestrator.adapters.guarded_proxy import (
    Look,
    ProxyRefusedError,
    checked_addresses,
    guarded_proxy,
    look_public,
)
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.domain.launch_plan import SHIPPED_LIMIT_BYTES
from orchestrator.domain.reuse_inputs import Interpreter

TIMEOUT_S = 1800.0
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
_LAST_LINES = 6


def pip(verb: str, *words: str, behind: Sequence[str] = (), cwd: Path | None = None) -> None:
    """Run the controller's pip with its own configuration. Raises WheelsError.

    `behind` is the command prefix that starts it.
    """
    command = (*behind, sys.executable, "-m", "pip", verb, *_QUIET, *words)
    run(command, what=f"pip {verb}", cwd=cwd)


def run(argv: Sequence[str], *, what: str, cwd: Path | None = None) -> str:
    """Run a program to its end and return its output. Raises WheelsError with its error output."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise WheelsError(f"{what} did not end within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise WheelsError(f"{what} cannot be run: {error}") from error
    if done.returncode:
        raise WheelsError(f"{what} failed: {_error_text(done.stdout + done.stderr)}")
    return done.stdout.decode(errors="replace")


def _error_text(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return "; ".join((errors or lines or ["it said nothing"])[-_LAST_LINES:])


Outward = Callable[[Sequence[str]], AbstractContextManager[tuple[str, ...]]]
"""Yields the command prefix of pip for the given URLs while the context is open.

Raises WheelsError if one of the URLs is not allowed.
"""

_HOST = re.compile(r"https?://(?:[^/@\s']*@)?([A-Za-z0-9.-]+)")


@contextmanager
def anywhere(_: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Allow every address: the controller serves only one person."""
    yield ()


@contextmanager
def guarded(
    urls: Sequence[str], *, resolve: Resolve = addresses_of, look: Look = look_public
) -> Iterator[tuple[str, ...]]:
    """Allow only public servers over https:// and the index of pip's configuration.

    If the environment names a proxy, the proxy decides instead.
    """
    for url in urls:
        _check(url, resolve, look)
    if not urls or getproxies().get("https"):
        yield ()
        return
    with guarded_proxy(resolve, look) as proxy:
        direct = ",".join([*_index_hosts(), getproxies().get("no", "")]).strip(",")
        names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
        given = [f"{name}={proxy}" for name in names]
        yield ("env", *given, f"NO_PROXY={direct}", f"no_proxy={direct}")


def _check(url: str, resolve: Resolve, look: Look) -> None:
    try:
        parts = urlsplit(url)
        checked_addresses(parts.hostname or "", parts.port or 443, resolve=resolve, look=look)
    except (ProxyRefusedError, ValueError) as error:
        raise WheelsError(f"{url} is not asked: {error}") from None


def _index_hosts() -> list[str]:
    """Return the index servers of the operator's pip configuration."""
    said = run((sys.executable, "-m", "pip", "config", "list"), what="pip config list")
    return sorted(set(_HOST.findall(said)))


_MOST_ROUNDS = 25
_KEPT_BUILDS = ("torch", "triton", "pytorch-triton", "nvidia-", "libtpu", "jax", "numpy")


@dataclass(slots=True)
class _Wanted:
    """All requirements of one distribution, combined."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: frozenset[str] = frozenset()
    url: str | None = None

    def text(self, name: str) -> str:
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{name}{extras} @ {self.url}" if self.url else f"{name}{extras}{self.specifier}"


class DependencyResolver:
    """Downloads wheels until every requirement of the machine is met."""

    def __init__(
        self,
        target: Interpreter,
        folder: Path,
        find_links: Iterable[str],
        *,
        outward: Outward = anywhere,
    ) -> None:
        """`outward` limits the addresses that pip may reach."""
        self._outward = outward
        self._target = target
        self._folder = folder
        self._find_links = tuple(find_links)
        self._wanted: dict[NormalizedName, _Wanted] = {}
        self._wheels: dict[NormalizedName, WheelFile] = {}
        self._ahead: deque[tuple[Requirement, str]] = deque()
        self._named: set[NormalizedName] = set()

    @property
    def wheels(self) -> dict[NormalizedName, WheelFile]:
        """The downloaded wheels by canonical name."""
        return self._wheels

    def want(self, requirement: Requirement) -> None:
        """Add a requirement by name, even if the machine has another version of it."""
        self._named.add(canonicalize_name(requirement.name))
        self._ahead.append((requirement, ""))

    def give(self, wheel: WheelFile) -> None:
        """Add an existing wheel and its requirements. Raises WheelsError."""
        if not tags(self._target) & set(wheel.tags):
            raise WheelsError(
                f"{wheel.filename} cannot be installed for {self._target.platform}: build one that"
                " can, or name another interpreter"
            )
        self._named.add(wheel.name)
        self._wanted[wheel.name] = _Wanted(SpecifierSet(f"=={wheel.version}"))
        self._take(wheel)

    def grow(self) -> None:
        """Download missing distributions, round by round. Raises WheelsError."""
        for _ in range(_MOST_ROUNDS):
            pending = self._pending()
            if not pending:
                return
            self._fetch(pending)
        names = ", ".join(sorted(self._named))
        raise WheelsError(
            f"dependency resolution of {names} did not converge after {_MOST_ROUNDS} rounds:"
            " pin the versions"
        )

    def _pending(self) -> list[NormalizedName]:
        pending: dict[NormalizedName, None] = {}
        while self._ahead:
            requirement, asker = self._ahead.popleft()
            name = canonicalize_name(requirement.name)
            if self._merge_requirement(requirement, name, asker):
                pending[name] = None
        return list(pending)

    def _merge_requirement(
        self, requirement: Requirement, name: NormalizedName, asker: str
    ) -> bool:
        fault = address_fault(requirement)
        if fault:
            raise WheelsError(f"{asker or 'the environment'} needs what is not fetched: {fault}")
        wanted = self._wanted.setdefault(name, _Wanted())
        new_extras = frozenset(requirement.extras) - wanted.extras
        wanted.specifier &= requirement.specifier
        wanted.extras |= requirement.extras
        wanted.url = requirement.url or wanted.url
        wheel = self._wheels.get(name)
        if wheel is not None:
            if new_extras and wanted.specifier.contains(wheel.version, prereleases=True):
                self._needs_of(wheel, new_extras)
            return not wanted.specifier.contains(wheel.version, prereleases=True)
        is_there = not new_extras and is_met(requirement, self._target.packages)
        if is_there and name not in self._named:
            return False
        self._refuse_replacing(requirement, name, asker)
        return True

    def _refuse_replacing(self, requirement: Requirement, name: NormalizedName, asker: str) -> None:
        """Raise WheelsError if a kept build would be replaced that was not requested by name."""
        has = self._target.packages.get(name)
        if has is None or name in self._named or not name.startswith(_KEPT_BUILDS):
            return
        if is_met(requirement, self._target.packages):
            return
        raise WheelsError(
            f"{asker} needs {requirement}, but {self._target.path} has {name} {has}, which is kept;"
            f" name another version of {asker}, or {requirement} itself to replace the image's"
        )

    def _fetch(self, names: list[NormalizedName]) -> None:
        texts = [self._wanted[name].text(name) for name in names]
        into = self._folder / f"round-{len(list(self._folder.iterdir()))}"
        into.mkdir()
        named = [url for name in names if (url := self._wanted[name].url)]
        try:
            with self._outward([*self._find_links, *named]) as behind:
                words = (*self._options(), "--dest", str(into), *texts)
                pip("download", *words, behind=behind)
        except WheelsError as error:
            raise WheelsError(
                f"no wheels of {', '.join(texts)} for {self._target.platform}: {error}; name"
                " versions that have one, or let the machine install from its own index"
                " (`index = true` in the environment)"
            ) from None
        for path in sorted(into.glob("*.whl")):
            self._take(read_wheel(path))
        absent = [name for name in names if name not in self._wheels]
        if absent:
            raise WheelsError(f"pip fetched no wheel of {', '.join(absent)}")
        self._refuse_too_much()

    def _refuse_too_much(self) -> None:
        sizes = {name: wheel.path.stat().st_size for name, wheel in self._wheels.items()}
        total = sum(sizes.values())
        if total <= SHIPPED_LIMIT_BYTES:
            return
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        told = ", ".join(f"{name} {sizes[name] / 1e9:.1f} GB" for name in largest)
        raise WheelsError(
            f"the wheels for {self._target.platform} have {total / 1e9:.1f} GB (the largest: "
            f"{told}), and {SHIPPED_LIMIT_BYTES / 1e9:.1f} GB are sent at most: name a build "
            "without CUDA where the machine has no GPU, or let the machine install from its own "
            "index (`index = true` in the environment)"
        )

    def _options(self) -> list[str]:
        version = ".".join(self._target.version.split(".")[:3]).rstrip("+")
        abi = "cp" + "".join(version.split(".")[:2])
        options = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--abi", abi]
        options += ["--python-version", version]
        for platform in platforms(self._target):
            options += ["--platform", platform]
        for link in self._find_links:
            options += ["--find-links", link]
        return options

    def _take(self, wheel: WheelFile) -> None:
        self._wheels[wheel.name] = wheel
        extras = self._wanted[wheel.name].extras if wheel.name in self._wanted else frozenset()
        self._needs_of(wheel, frozenset({"", *extras}))

    def _needs_of(self, wheel: WheelFile, extras: frozenset[str]) -> None:
        for requirement in wheel.requires:
            if applies(requirement, self._target, extras):
                self._ahead.append((requirement, f"{wheel.distribution} {wheel.version}"))
