"""Everything that some requirements need on a machine, fetched as wheels.

`pip download` alone will not do: it judges markers by the controller's Python instead of the
machine's, and it cannot be told what the machine already has, so that it would fetch another torch.
So pip finds and fetches single wheels, and the walk through what they need is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from orchestrator.adapters.files.pip_commands import pip
from orchestrator.adapters.files.pip_network import Outward, anywhere
from orchestrator.adapters.files.requirements import address_fault
from orchestrator.adapters.files.target_python import applies, is_met, platforms, tags
from orchestrator.adapters.files.wheel_files import WheelFile, read_wheel
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.domain.reuse_inputs import Interpreter

_MOST_ROUNDS = 25
_KEPT_BUILDS = ("torch", "triton", "pytorch-triton", "nvidia-", "libtpu", "jax", "numpy")


@dataclass(slots=True)
class _Wanted:
    """All that has been asked of one distribution."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: frozenset[str] = frozenset()
    url: str | None = None

    def text(self, name: str) -> str:
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{name}{extras} @ {self.url}" if self.url else f"{name}{extras}{self.specifier}"


class DependencyResolver:
    """Grows until nothing is missing on the machine."""

    def __init__(
        self,
        target: Interpreter,
        folder: Path,
        find_links: Iterable[str],
        *,
        outward: Outward = anywhere,
    ) -> None:
        """`outward` says where pip may look."""
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
        """What was fetched, by canonical name."""
        return self._wheels

    def want(self, requirement: Requirement) -> None:
        """Ask for something by name, even where the machine has another version of it."""
        self._named.add(canonicalize_name(requirement.name))
        self._ahead.append((requirement, ""))

    def give(self, wheel: WheelFile) -> None:
        """Add a wheel that is there already, and what it needs. Raises WheelsError."""
        if not tags(self._target) & set(wheel.tags):
            raise WheelsError(
                f"{wheel.filename} cannot be installed for {self._target.platform}: build one that"
                " can, or name another interpreter"
            )
        self._named.add(wheel.name)
        self._wanted[wheel.name] = _Wanted(SpecifierSet(f"=={wheel.version}"))
        self._take(wheel)

    def grow(self) -> None:
        """Fetch what is missing, round by round. Raises WheelsError."""
        for _ in range(_MOST_ROUNDS):
            pending = self._pending()
            if not pending:
                return
            self._fetch(pending)
        raise WheelsError(f"the requirements of {', '.join(sorted(self._named))} never settle")

    def _pending(self) -> list[NormalizedName]:
        pending: dict[NormalizedName, None] = {}
        while self._ahead:
            requirement, asker = self._ahead.popleft()
            name = canonicalize_name(requirement.name)
            if self._is_missing(requirement, name, asker):
                pending[name] = None
        return list(pending)

    def _is_missing(self, requirement: Requirement, name: NormalizedName, asker: str) -> bool:
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
        """Builds that fit the machine's drivers are only replaced where a person says so."""
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
