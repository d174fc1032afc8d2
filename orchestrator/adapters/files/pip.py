"""Runs pip and git: which addresses they may reach, and how pip resolves dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from orchestrator.adapters.files import package_index
from orchestrator.adapters.files.package_index import (
    GET,
    HEAD,
    OfferedWheel,
    Page,
    Question,
    in_folder,
    offered,
    origin,
    split_credentials,
)
from orchestrator.adapters.files.requirements import (
    WheelFile,
    address_fault,
    read_wheel,
    requires_in,
    shown,
)
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
from orchestrator.domain.launch_plan import INDEX_ADVICE, SHIPPED_LIMIT_BYTES, over_limit
from orchestrator.domain.reuse_inputs import Interpreter
from orchestrator.domain.units import size

TIMEOUT_S = 1800.0
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
_LAST_LINES = 6


def pip(verb: str, *words: str, behind: Sequence[str] = (), cwd: Path | None = None) -> None:
    """Run the controller's pip with its own configuration. Raises WheelsError.

    `behind` is the command prefix that starts it.
    """
    command = (*behind, sys.executable, "-m", "pip", verb, *_QUIET, *words)
    run(command, what=f"pip {verb}", cwd=cwd)


def run(argv: Sequence[str], *, what: str, cwd: Path | None = None, given: str = "") -> str:
    """Run a program to its end and return its output. Raises WheelsError with its error output.

    `given` is its input.
    """
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            input=given.encode(),
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
        raise WheelsError(f"{split_credentials(url)[0]} is not asked: {error}") from None


def _index_hosts() -> list[str]:
    """Return the index servers of the operator's pip configuration."""
    return sorted(set(_HOST.findall(_pip_config())))


def _pip_config() -> str:
    return run((sys.executable, "-m", "pip", "config", "list"), what="pip config list")


_SECTIONS = ("global", "download", ":env:")
"""Sections of pip's configuration; a later one overrides an earlier one."""
_PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of wheels in the operator's pip configuration."""

    indexes: tuple[str, ...]
    links: tuple[str, ...]
    """Pages or folders of wheels."""
    authorities: str
    """File of certificate authorities; empty for the system's."""


def _sources() -> _Sources:
    found: dict[tuple[str, str], list[str]] = {}
    for line in _pip_config().splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        with suppress(ValueError, SyntaxError):
            found[section, key] = str(ast.literal_eval(value)).split()

    def setting(key: str) -> list[str]:
        return next((found[s, key] for s in reversed(_SECTIONS) if (s, key) in found), [])

    indexes = [*(setting("index-url") or [_PYPI]), *setting("extra-index-url")]
    has_none = setting("no-index")[:1] in (["1"], ["true"], ["True"], ["yes"], ["on"])
    return _Sources(
        () if has_none else tuple(indexes),
        tuple(setting("find-links")),
        next(iter(setting("cert")), ""),
    )


_MOST_ROUNDS = 25
_WITHOUT_WHEEL = re.compile(r"No matching distribution found for ([^;]*[^; ])")
"""pip's error for a requirement without a wheel, which it names."""
_KEPT_BUILDS = ("torch", "triton", "pytorch-triton", "nvidia-", "libtpu", "jax", "numpy")


@dataclass(slots=True)
class _Wanted:
    """All requirements of one distribution, combined."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: frozenset[str] = frozenset()
    url: str | None = None
    stated: list[str] = field(default_factory=list)
    """Who needs which versions."""

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
        limit_bytes: int = SHIPPED_LIMIT_BYTES,
    ) -> None:
        """`outward` limits the addresses that pip may reach, `limit_bytes` all wheels together."""
        self._outward = outward
        self._limit_bytes = limit_bytes
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

    def want(self, requirement: Requirement, asker: str = "") -> None:
        """Add a requirement by name, even if the machine has another version of it."""
        self._named.add(canonicalize_name(requirement.name))
        self.hold(requirement, asker)

    def hold(self, requirement: Requirement, asker: str) -> None:
        """Add a requirement that must hold if the machine's version of the package is replaced."""
        self._ahead.append((requirement, asker))

    def give(self, wheel: WheelFile) -> None:
        """Add an existing wheel and its requirements. Raises WheelsError."""
        if not set(tags(self._target)) & set(wheel.tags):
            raise WheelsError(
                f"{wheel.filename} cannot be installed for {self._target.platform}: build one that"
                " can, or name another interpreter"
            )
        self._named.add(wheel.name)
        stated = [f"the subject is {wheel.distribution} {wheel.version}"]
        self._wanted[wheel.name] = _Wanted(SpecifierSet(f"=={wheel.version}"), stated=stated)
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
        if requirement.specifier:
            limit = f"{requirement.name}{requirement.specifier}"
            wanted.stated.append(f"{asker or 'the environment'} needs {limit}")
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
        wanted = shown(requirement)
        raise WheelsError(
            f"{asker} needs {wanted}, but {self._target.path} has {name} {has}, which is kept;"
            f" name another version of {asker}, or {wanted} itself to replace the image's"
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
            named = _WITHOUT_WHEEL.findall(str(error))
            raise WheelsError(
                f"no wheels of {', '.join(dict.fromkeys(named) or texts)} for"
                f" {self._target.platform}: {self._disputed(names) if named else ''}{error};"
                f" name versions that have one, or {INDEX_ADVICE}"
            ) from None
        for path in sorted(into.glob("*.whl")):
            self._take(read_wheel(path))
        absent = [name for name in names if name not in self._wheels]
        if absent:
            raise WheelsError(f"pip fetched no wheel of {', '.join(absent)}")
        self._refuse_too_much()

    def _disputed(self, names: Iterable[NormalizedName]) -> str:
        """Return the requirements that limit one distribution; empty if there is only one."""
        stated = (dict.fromkeys(self._wanted[name].stated) for name in names)
        return "".join(f"{', and '.join(each)}; " for each in stated if len(each) > 1)

    def _refuse_too_much(self) -> None:
        sizes = {name: wheel.path.stat().st_size for name, wheel in self._wheels.items()}
        total = sum(sizes.values())
        if total <= self._limit_bytes:
            return
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        told = ", ".join(f"{name} {size(sizes[name])}" for name in largest)
        raise WheelsError(
            f"the wheels for {self._target.platform} (the largest: {told}): "
            f"{over_limit(total, self._limit_bytes)}"
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


_NOT_FOUND = 404
_NAMED = 5


class SizeResolver(DependencyResolver):
    """Finds what a `DependencyResolver` would download, by pages and metadata alone."""

    def __init__(
        self,
        target: Interpreter,
        folder: Path,
        find_links: Iterable[str],
        *,
        outward: Outward = anywhere,
    ) -> None:
        super().__init__(target, folder, find_links, outward=outward)
        self._ranks: dict[Tag, int] = {tag: rank for rank, tag in enumerate(tags(target))}
        sources = _sources()
        self._indexes, self._authorities = sources.indexes, sources.authorities
        self._links = (*sources.links, *self._find_links)
        self._linked: list[OfferedWheel] | None = None
        self._failures: list[str] = []
        self._credentials: dict[str, str] = {}
        self.sizes: dict[NormalizedName, int | None] = {}
        """Size in bytes of each wheel that was not given; None if no page states it."""
        self.unknown: dict[NormalizedName, str] = {}
        """Distributions of which the size or the needs are unknown, with the reason."""

    def _fetch(self, names: list[NormalizedName]) -> None:
        urls = [url for name in names if (url := self._wanted[name].url)]
        with self._outward([*self._find_links, *urls]) as behind:
            offers = self._offers(names, behind)
            chosen = {
                name: best for name in names if (best := self._best(name, offers[name])) is not None
            }
            asked = {name: _questions(wheel) for name, wheel in chosen.items()}
            pages = iter(self._pages([one for each in asked.values() for one in each], behind))
            for name, wheel in chosen.items():
                self._note(name, wheel, [next(pages) for _ in asked[name]])

    def _pages(self, asked: Sequence[str], behind: Sequence[str]) -> list[Page]:
        if not asked:
            return []
        program = (*behind, sys.executable, "-m", package_index.__name__)
        text = package_index.request_text(self._authorities, map(self._question, asked))
        return package_index.read_pages(run(program, what="asking the index", given=text))

    def _question(self, asked: str) -> Question:
        """Return the request for an address, with the credentials of the address or its index."""
        method, _, address = asked.partition(" ")
        url, own = split_credentials(address)
        if own:
            self._credentials.setdefault(origin(url), own)
        return Question(method, url, own or self._credentials.get(origin(url), ""))

    def _offers(
        self, names: Sequence[NormalizedName], behind: Sequence[str]
    ) -> dict[NormalizedName, list[OfferedWheel]]:
        """Return the wheels of each distribution that the indexes and pages offer."""
        remote = [index for index in self._indexes if not _folder(index)]
        links = [link for link in self._links if not _folder(link)] if self._linked is None else []
        asked = [f"{GET} {index.rstrip('/')}/{name}/" for name in names for index in remote]
        pages = self._pages([*asked, *(f"{GET} {link}" for link in links)], behind)
        if self._linked is None:
            self._linked = [wheel for page in pages[len(asked) :] for wheel in self._read(page)]
            for link in filter(None, map(_folder, self._links)):
                self._linked += in_folder(link)
        found: dict[NormalizedName, list[OfferedWheel]] = {}
        for at, name in enumerate(names):
            own = pages[at * len(remote) : (at + 1) * len(remote)]
            found[name] = [*(wheel for page in own for wheel in self._read(page)), *self._linked]
            for index in filter(None, map(_folder, self._indexes)):
                found[name] += in_folder(index / name)
        return found

    def _read(self, page: Page) -> list[OfferedWheel]:
        """Return the wheels of a page; note a failure if it could not be fetched or parsed.

        A page that does not exist (404) is no failure.
        """
        failure = page.failure
        if not failure:
            try:
                return list(offered(page))
            except ValueError as error:
                failure = f"the page is unreadable: {error}"
        if page.status != _NOT_FOUND:
            self._failures.append(f"{page.url}: {failure}")
        return []

    def _best(self, name: NormalizedName, offers: Iterable[OfferedWheel]) -> OfferedWheel | None:
        """Return the wheel that pip would take; None if an index that may have one is silent.

        Raises WheelsError.
        """
        wanted = self._wanted[name]
        if wanted.url:
            return OfferedWheel(unquote(urlsplit(wanted.url).path.rpartition("/")[2]), wanted.url)
        named = [(read, one) for one in offers if (read := _read_name(one.filename, name))]
        fitting: dict[Version, list[tuple[int, OfferedWheel]]] = {}
        for (version, its_tags), one in named:
            ranks = [self._ranks[tag] for tag in its_tags if tag in self._ranks]
            if ranks and not one.is_yanked and self._takes_python(one.requires_python):
                fitting.setdefault(version, []).append((min(ranks), one))
        versions = list(wanted.specifier.filter(fitting))
        if versions:
            return min(fitting[max(versions)], key=lambda each: each[0])[1]
        if self._failures:
            self.unknown[name] = self._failures[-1]
            return None
        raise WheelsError(self._why_none(name, sorted(fitting), bool(named)))

    def _why_none(self, name: NormalizedName, fitting: list[Version], is_named: bool) -> str:
        text, platform = self._wanted[name].text(name), self._target.platform
        if fitting:
            newest = ", ".join(str(version) for version in reversed(fitting[-_NAMED:]))
            why = f"the newest that there are for it are {newest}"
        else:
            why = "all of its wheels are for others" if is_named else "no index knows its name"
        return (
            f"no wheel of {text} for {platform}: {self._disputed([name])}{why};"
            " pin a version that has one in the "
            f"environment's `pip`, name a page that has one in its `find_links`, or {INDEX_ADVICE}"
        )

    def _takes_python(self, specifier: str) -> bool:
        try:
            return SpecifierSet(specifier).contains(self._target.version, prereleases=True)
        except InvalidSpecifier:
            return True

    def _note(self, name: NormalizedName, offer: OfferedWheel, pages: list[Page]) -> None:
        folder = _folder(offer.url)
        size_bytes, needs = offer.size_bytes, None
        if folder:
            size_bytes, needs = folder.stat().st_size, read_wheel(folder).requires
        for page in pages:
            if page.failure:
                self.unknown[name] = page.failure
            elif page.text:
                with suppress(ValueError):
                    needs = requires_in(page.text)
            else:
                size_bytes = page.size_bytes
        if needs is None:
            self.unknown.setdefault(name, "its index does not say what it needs")
        if size_bytes is None:
            self.unknown.setdefault(name, "its server does not say its size")
        read = _read_name(offer.filename, name)
        if read is None:
            raise WheelsError(f"{split_credentials(offer.url)[0]} is no wheel of {name}")
        self.sizes[name] = size_bytes
        self._take(WheelFile(Path(offer.filename), name, read[0], tuple(read[1]), needs or ()))


def _questions(wheel: OfferedWheel) -> list[str]:
    """Return the requests for what an index did not say of a wheel."""
    if _folder(wheel.url):
        return []
    needs = [f"{GET} {wheel.url}.metadata"] if wheel.has_metadata else []
    return needs + ([f"{HEAD} {wheel.url}"] if wheel.size_bytes is None else [])


def _folder(place: str) -> Path | None:
    """Return the path of a local folder or file; None for a server's address."""
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place)


def _read_name(filename: str, name: NormalizedName) -> tuple[Version, Iterable[Tag]] | None:
    """Return version and tags of a wheel of the distribution by its file's name, or None."""
    try:
        of, version, _, its_tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return (version, sorted(its_tags, key=str)) if of == name else None
