"""Lists the packages installed for the jobs, and restores them before each job."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from . import bounded_process, interpreters
from .attempt_errors import EnvironmentFailed
from .evidence_text import JsonValue
from .layout import AttemptFolder, Mark, mark_of
from .plan import PlanSubject
from .pytest_records import RecordsRefusal

_TIMEOUT_S = 300.0
_TOOLS = ("pytest", "pluggy")
_USUAL = "sha256="

# Runs isolated: nothing of the payload, its path or its variables is seen.
_LIST = """
def listed(name):
    try:
        found = InstalledFiles(name)
    except NotInstalledError:
        return None
    digests = {**found.files, **({found.record: ""} if found.record else {})}
    version = found.version if found.roots else ""
    roots = sorted(found.roots)
    return {"home": found.home, "version": version, "digests": digests, "roots": roots}

# The folders of the path are read, as pkgutil does not tell packages without __init__.py.
names = {*sys.builtin_module_names, *getattr(sys, "stdlib_module_names", ())}
for folder in filter(os.path.isdir, sys.path):
    names.update(name.partition(".")[0] for name in os.listdir(folder))
answers = {
    "files": {name: listed(name) for name in sys.argv[1:]},
    "names": sorted(filter(str.isidentifier, names)),
    "undeclared": undeclared(sys.argv[3]) if sys.argv[3:] and listed(sys.argv[3]) else None,
}
"""


@dataclass(frozen=True)
class Files:
    """The files of one distribution, as they were after the environment was built."""

    name: str
    reason: str
    """Reason of the outcome if the files differ: ``wrong_subject`` or ``wrong_pytest``."""
    home: Path
    digests: Mapping[str, str]
    """Digests from RECORD by path below `home`; the agent computes those of files without one."""
    marks: Mapping[str, Mark]
    byte_code: Mapping[Path, Mark]
    """Compiled files beside the sources."""
    problem: str
    """Why the installation was wrong or incomplete from the start; usually empty."""

    def refusal(self) -> Optional[RecordsRefusal]:
        """Return why results of these files do not count, or None."""
        if self.problem:
            return RecordsRefusal(self.reason, f"{self.problem}. Fix: install {self.name} anew")
        for path, mark in self.marks.items():
            file = self.home / path
            if mark_of(file) != mark and _digest(file, self.digests[path]) != self.digests[path]:
                text = f"{path} of {self.name} was changed after it had been installed"
                return RecordsRefusal(
                    self.reason, f"{text}. Fix: let nothing of the payload write there"
                )
        return None

    def folders(self) -> List[Path]:
        """Return its packages' folders."""
        return [self.home / top for top in {path.split("/")[0] for path in self.digests}]

    def tops(self) -> List[str]:
        """Return the distribution's top-level import names; ``*`` if its files do not show them."""
        first = {path.split("/")[0].split(".")[0] for path in self.digests}
        named = sorted(name for name in first if name.isidentifier() and "__editable__" not in name)
        return named or ["*"]

    def byte_code_digest(self) -> str:
        """Return a digest by which a test process detects changes to the installer's byte code.

        ``seatrial_code`` computes the same text.
        """
        rows = sorted([str(file), *(mark or ())] for file, mark in self.byte_code.items())
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def drop_strange_byte_code(self) -> None:
        """Remove compiled files that were not there, which Python would run instead of a source.

        Python compiles the sources again.
        """
        for file, mark in _byte_code(self.home, self.digests).items():
            if self.byte_code.get(file) != mark:
                with contextlib.suppress(OSError):  # what cannot be removed was not written by jobs
                    file.unlink()


class EnvironmentInventory(NamedTuple):
    """Files and importable names of an environment, read by one start of its interpreter."""

    files: Tuple[Files, ...]
    """Files of the subject, of pytest, and of pytest's dependencies."""
    names: FrozenSet[str]
    """Names of all modules and packages that Python can import without the payload."""
    undeclared: JsonValue = None
    """Modules that the subject needs and its metadata does not require, as `seatrial_undeclared`
    returns them; None if that was not read.
    """
    subject_imports: Tuple[str, ...] = ()
    """Names that the subject is imported by, as ``a.b`` in a namespace; empty without a subject."""


class EnvironmentCopy:
    """The environment of the jobs, which is restored before each job."""

    def __init__(self, folder: Path) -> None:
        """Record its files before the first job.

        Args:
            folder: The folder of the attempt's environment. Compiled byte code is ignored.
        """
        self._folder = folder
        self._marks = self._now()

    def restore(self) -> List[str]:
        """Remove the files that earlier jobs added; return their paths below the folder.

        Raises:
            OSError: a file cannot be removed, or an installed file was changed or removed.
        """
        now = self._now()
        changed = sorted(path for path in self._marks if now.get(path) != self._marks[path])
        if changed:
            more = f" and {len(changed) - 1} more files" if len(changed) > 1 else ""
            raise OSError(f"{changed[0]}{more} of the environment differ from what was installed")
        added = sorted(now.keys() - self._marks.keys())
        for path in added:
            (self._folder / path).unlink()
        return added

    def added(self, folders: Iterable[Path]) -> Iterator[Path]:
        """Yield the files below some of its folders that were not installed, in no order."""
        root = self._folder.resolve()
        for folder in folders:
            for place, _, names in os.walk(os.path.realpath(folder)):  # also of a link to itself
                below = Path(os.path.relpath(place, root))
                if not place.endswith("__pycache__") and ".." not in below.parts:
                    new = (name for name in names if str(below / name) not in self._marks)
                    yield from (Path(place, name) for name in new)

    def _now(self) -> Dict[str, Mark]:
        found: Dict[str, Mark] = {}
        for place, folders, names in os.walk(self._folder):
            if place.endswith("__pycache__"):
                continue
            below = Path(place).relative_to(self._folder)
            links = (each for each in folders if Path(place, each).is_symlink())
            for name in (*names, *links):
                found[str(below / name)] = mark_of(Path(place, name), is_link=True)
        return found


def take(
    attempt: AttemptFolder,
    subject: Optional[PlanSubject],
    account: bounded_process.Account,
    tick: Callable[[], None],
) -> EnvironmentInventory:
    """List the installed files, and the names that can be imported.

    Packages may bring files that run when Python starts: they do so as the jobs' user here, and
    not where what was installed is compiled.

    Args:
        attempt: The attempt of the environment, in which no code of the payload has run yet.
        subject: The subject under validation, if any.
        account: The jobs' user.
        tick: Called while this waits.

    Raises:
        EnvironmentFailed: the environment cannot be listed.
    """
    script = interpreters.requirements_program() + _LIST
    asked = [*_TOOLS, *([subject.distribution] if subject else [])]
    answers = _answers(attempt, script, asked, account, tick)
    found, names = answers["files"], answers["names"]
    assert isinstance(found, dict)
    assert isinstance(names, list)
    _compile(attempt, tick)
    taken = [_files(name, found[name]) for name in _TOOLS if found[name] is not None]
    imports: Tuple[str, ...] = ()
    if subject is not None:
        row = found[subject.distribution]
        taken.append(_files(subject.distribution, row, subject))
        roots = row["roots"] if isinstance(row, dict) else []
        assert isinstance(roots, list)
        imports = tuple(map(str, roots))
    return EnvironmentInventory(
        tuple(taken), frozenset(map(str, names)), answers["undeclared"], imports
    )


def _compile(attempt: AttemptFolder, tick: Callable[[], None]) -> None:
    """Compile the installed packages, in a process that does not import them."""
    for site in attempt.venv.glob("lib/python3*/site-packages"):
        if any(site.glob("*.dist-info")):
            # The exit code is 1 if any file is of another version of Python: such have none.
            bounded_process.run(
                (str(attempt.python), "-I", "-S", "-m", "compileall", "-q", "-q", "-f", str(site)),
                timeout_s=_TIMEOUT_S,
                env=interpreters.quiet_environment(),
                cwd=attempt.folder,
                tick=tick,
            )


def _answers(
    attempt: AttemptFolder,
    script: str,
    requested: Sequence[str],
    account: bounded_process.Account,
    tick: Callable[[], None],
) -> Mapping[str, JsonValue]:
    answer = bounded_process.run(
        (str(attempt.python), "-I", "-c", interpreters.answering(script, "answers"), *requested),
        timeout_s=_TIMEOUT_S,
        env=interpreters.quiet_environment(),
        cwd=attempt.folder,
        account=account,
        tick=tick,
    )
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        said = answer.text.strip()[-1_000:]
        raise EnvironmentFailed(f"what is installed cannot be listed: {said}")
    return found


def _files(name: str, row: JsonValue, subject: Optional[PlanSubject] = None) -> Files:
    told = row if isinstance(row, dict) else {"home": "", "version": None, "digests": {}}
    home, listed = Path(str(told["home"])), told["digests"]
    assert isinstance(listed, dict)
    now = {path: _digest(home / path, str(value) or _USUAL) for path, value in listed.items()}
    problem = _not_asked_for(subject, told["version"], listed) if subject else ""
    return Files(
        name=name,
        reason="wrong_subject" if subject else "wrong_pytest",
        home=home,
        digests=now,
        marks={path: mark_of(home / path) for path in now},
        byte_code=_byte_code(home, now),
        problem=problem or _differs(name, str(told["version"]), listed, now),
    )


def _not_asked_for(
    subject: PlanSubject, version: JsonValue, listed: Mapping[str, JsonValue]
) -> str:
    name = subject.distribution
    if version is None:
        return f"{name} is not installed"
    if not version:
        return f"{name} installed no importable files of its own (an editable install?)"
    if subject.version and version != subject.version:
        return f"{name} is installed as {version}, not {subject.version}"
    return (
        ""
        if any(listed.values())
        else "its RECORD holds no digests: build the wheel with a tool that writes them"
    )


def _differs(
    name: str, version: str, listed: Mapping[str, JsonValue], now: Mapping[str, str]
) -> str:
    for path in sorted(now):
        if not now[path]:
            return f"{path} cannot be read"
        if listed[path] and now[path] != listed[path]:
            return f"{path} differs from what {name} {version} installed"
    return ""


def _digest(file: Path, like: str) -> str:
    """Return a file's digest by the algorithm of the digest `like`; empty if it is unreadable."""
    kind = like.partition("=")[0]
    try:
        raw = hashlib.new(kind, file.read_bytes()).digest()
    except OSError:
        return ""
    return f"{kind}={base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}"


def _byte_code(home: Path, paths: Iterable[str]) -> Dict[Path, Mark]:
    caches = {(home / path).parent / "__pycache__" for path in paths if path.endswith(".py")}
    return {file: mark_of(file) for cache in caches for file in cache.glob("*.pyc")}
