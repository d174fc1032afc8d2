"""The payload's manifest: the schema of ``payload.toml``."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal, get_args

from orchestrator.domain.document_problems import Problem, nearest
from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.versions import canonical_name

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Pattern of the ids of jobs, platforms and environments, which become names of files."""

UNTRUSTED = "untrusted:"
"""Prefix of product names of untrusted code; no payload can have such a name."""

_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Name of the package at the beginning of a requirement."""

OUTPUT = "output"
"""Entry of a job's `metrics` that selects the job's output."""
_METRICS_FILE = re.compile(r"[A-Za-z0-9._+=@-]{1,60}(?:/[A-Za-z0-9._+=@-]{1,60}){0,3}")
_METRICS_NAME_CHARS = 99
_ATTEMPT_FILE = re.compile(r"environment\.json|gpu_info\.txt|(?:attempt-\d+\.)?events\.jsonl")
"""Names of raw files that do not belong to a job."""

CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")
"""NVIDIA's compute capability, such as ``8.9``."""

JobKind = Literal["suite", "demo", "benchmark", "use-case"]
JOB_KINDS: tuple[JobKind, ...] = get_args(JobKind)
"""All kinds of jobs; artifacts of other programs name jobs with these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the payload."""

    __pydantic_config__ = STRICT

    id: str
    """Id of the job, unique in the payload; also the name of its log."""
    kind: JobKind
    """``suite`` runs pytest; the others run a command."""
    title: str = ""
    """Title in reports; by default the id."""
    pytest: tuple[str, ...] = ()
    """Arguments of pytest, relative to the payload; only for suites."""
    command: tuple[str, ...] = ()
    """Command of a job that is not a suite; ``{python}`` becomes the environment's interpreter."""
    timeout_minutes: float = 30.0
    """Time limit of the job; a job that exceeds it is `timed_out`."""
    idle_timeout_minutes: float | None = None
    """Minutes without output and events after which the job hangs; by default 3, or more if its
    tests take longer."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables; relative paths in ``PYTHONPATH`` start at the payload."""
    gpus: int = 0
    """Number of accelerators that the job needs."""
    compute_capability: str = ""
    """Minimum compute capability of an NVIDIA GPU, quoted: ``"8.9"``.

    The job needs a GPU, as with ``gpus = 1``. It is not sent to a platform that is known to
    have a lower one, or another vendor's accelerators.
    """
    exclusive: bool = False
    """Whether no other job may run on the machine at the same time."""
    secrets: tuple[str, ...] = ()
    """Names of the matrix's secrets that the job receives."""
    metrics: tuple[str, ...] = ()
    """Where the job's metrics are: ``output`` (its printed output), or names of files that it
    writes."""
    turns: bool = False
    """Whether the benchmark stays resident and measures in turns (``seatrial_events.turns()``)."""

    @property
    def name(self) -> str:
        """The title of the job; its id if it has no title."""
        return self.title or self.id

    @property
    def gpus_needed(self) -> int:
        """Number of accelerators that the job needs; at least one with a compute capability."""
        return max(self.gpus, 1) if self.compute_capability else self.gpus

    @property
    def has_file_checks(self) -> bool:
        """Whether exit code 0 alone is no pass: its output or metric files are read, too."""
        return self.kind != "suite" or bool(self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonChoice:
    """Selection of an interpreter on the machine."""

    __pydantic_config__ = STRICT

    candidates: tuple[str, ...] = ("python3",)
    """Paths or names of interpreters; the first one that meets the requirements is used."""
    requires: tuple[str, ...] = ()
    """Requirements that the interpreter must meet without installation, such as ``torch>=2.7``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Packages and variables that are added to those of the interpreter."""

    __pydantic_config__ = STRICT

    python: tuple[str, ...] = ()
    """Interpreters that replace `python.candidates`: paths or names, such as ``python3.12``."""
    pip: tuple[str, ...] = ()
    """Requirements to install; packages that are already installed keep their version."""
    find_links: tuple[str, ...] = ()
    """Additional https addresses where wheels are found."""
    index: bool = False
    """Whether the machine may use its own package index for missing wheels."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The short form of ``[env.image]``."""

    __pydantic_config__ = STRICT

    pip: tuple[str, ...] = ()
    """Requirements to install."""


DERIVED: Mapping[str, bool] = MappingProxyType({"derived": True})
"""Metadata of fields that cannot be written in ``payload.toml``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of ``payload.toml``."""

    __pydantic_config__ = STRICT

    name: str
    """The payload's name."""
    version: str
    """The payload's version, quoted."""
    schema: Literal[1] = 1
    """Version of this schema."""
    root: str = "."
    """Folder that is shipped and in which every job runs, relative to this file."""
    exclude: tuple[str, ...] = ()
    """Patterns of files and folders that are not shipped; `*` matches any characters, also `/`."""
    python: PythonChoice = field(default_factory=PythonChoice)
    """The interpreter."""
    env: dict[str, Environment] = field(default_factory=dict)
    """Environments by name."""
    setup: Setup | None = None
    """The short form of ``[env.image]``."""
    job: tuple[Job, ...] = ()
    """Jobs in the order in which they run."""
    untaken_tests: tuple[str, ...] = field(default=(), metadata=DERIVED)
    """Shipped files with the name of a test file that no job runs; derived from the archive."""
    excluded_tests: tuple[str, ...] = field(default=(), metadata=DERIVED)
    """Files with the name of a test file that `exclude` keeps out of the archive; written by its
    packer."""

    @property
    def is_untrusted(self) -> bool:
        """Whether the payload belongs to a run of untrusted code."""
        return self.name.startswith(UNTRUSTED)

    def as_untrusted(self) -> Manifest:
        """Return the manifest with the name of another product, for untrusted code.

        Results are compared, and decide, only within one product.
        """
        return self if self.is_untrusted else replace(self, name=f"{UNTRUSTED}{self.name}")

    def environment(self, name: str) -> Environment | None:
        """Return the named environment; None if there is none. ``image`` always exists."""
        if name == "image" and name not in self.env:
            return Environment(pip=self.setup.pip if self.setup else ())
        return self.env.get(name)

    def candidates(self, environment: str) -> tuple[str, ...]:
        """Return the interpreters of an environment in the order to try them."""
        found = self.environment(environment)
        return (found.python if found else ()) or self.python.candidates

    def named_packages(self, environment: str) -> frozenset[str]:
        """Return the canonical names of the packages in an environment's requirements."""
        found = self.environment(environment)
        stated = (*self.python.requires, *(found.pip if found else ()))
        names = (_PACKAGE.match(text.strip()) for text in stated)
        return frozenset(canonical_name(name[0]) for name in names if name is not None)

    @property
    def environment_names(self) -> tuple[str, ...]:
        """The names of all environments, to which a matrix may refer."""
        return tuple(dict.fromkeys(["image", *self.env]))


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """A stored payload with its manifest."""

    digest: str
    """sha256 of its archive."""
    size_bytes: int
    """Size of its archive."""
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadResponse:
    """An uploaded payload, identified by the sha256 of its archive."""

    digest: str
    size_bytes: int
    name: str
    version: str
    jobs: tuple[str, ...]
    """Ids of the jobs, in the order in which they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFileResponse:
    """An uploaded wheel, identified by its sha256."""

    digest: str
    size_bytes: int


def check_manifest(manifest: Manifest) -> tuple[Problem, ...]:
    """Return every problem of a manifest that matches the schema."""
    return tuple(_manifest_problems(manifest))


def _shipping_problems(manifest: Manifest) -> Iterator[Problem]:
    for name in ("untaken_tests", "excluded_tests"):
        if getattr(manifest, name):
            yield Problem((name,), "is no key of payload.toml: it is read from the archive")
    if PurePosixPath(manifest.root).is_absolute():
        yield Problem(("root",), f"{manifest.root!r} must be relative to payload.toml")
    for index, pattern in enumerate(manifest.exclude):
        if not pattern or PurePosixPath(pattern).is_absolute() or ".." in pattern.split("/"):
            yield Problem(("exclude", index), f"{pattern!r} must name something below the root")


def _manifest_problems(manifest: Manifest) -> Iterator[Problem]:
    if manifest.is_untrusted:
        yield Problem(("name",), f"{UNTRUSTED!r} begins products of untrusted code: rename it")
    if not manifest.job:
        yield Problem(("job",), "a payload needs at least one [[job]]")
    if manifest.setup and "image" in manifest.env:
        yield Problem(("setup",), "[setup] is the short form of [env.image]: keep one of them")
    yield from _shipping_problems(manifest)
    for name, environment in manifest.env.items():
        yield from _identifier_problems(name, ("env", name))
        yield from _variable_problems(environment.variables, ("env", name, "variables"))
    repeated = Counter(job.id for job in manifest.job)
    for index, job in enumerate(manifest.job):
        if repeated[job.id] > 1:
            yield Problem(("job", index, "id"), f"{job.id!r} is the id of {repeated[job.id]} jobs")
        yield from _job_problems(job, ("job", index))


_SHELLS = frozenset(("sh", "ash", "bash", "dash", "ksh", "zsh"))
_DROPPING = (
    (re.compile(r"\|\|\s*(?:true\b|:|exit 0\b|echo\b)"), None),
    (re.compile(r"(?<!\|)\|(?!\|)"), re.compile(r"\bpipefail\b")),
    (re.compile(r"(?<![&<>|])&(?![&>\d])"), re.compile(r"\bwait\b")),
    (re.compile(r";\s*(?:echo|printf|true|:|exit 0)(?:\s[^;&|]*)?$"),
     re.compile(r"(?:^|\s)-\w*e\w*\b")),
)  # fmt: skip
"""Parts of a shell command that drop an exit code, each with what keeps the code.

Quotation marks are not parsed.
"""


def dropped_exit_codes(manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each job whose shell seems to drop the exit code of a program."""
    for job in manifest.job:
        shell = job.command[:1] and job.command[0].rpartition("/")[2] in _SHELLS
        text = " ".join(job.command[1:]) if shell else ""
        for drops, keeps in _DROPPING:
            found = drops.search(text)
            if found and not (keeps and keeps.search(text)):
                yield (
                    f"job {job.id} ends well whatever the program before `{found[0].strip()}` ends"
                    " with: the shell drops its exit code"
                )
                break


_NO_VALUE = re.compile(
    r"-[vqsxlh]+|--[a-z-]+=.*|--(?:lf|ff|nf|sw|last-failed|failed-first|exitfirst)"
)
"""Options of pytest that take no value, so that the next argument is a path."""
_ELSEWHERE = re.compile(r"/|~|@|(?:.*/)?\.\.(?:/|$)")
"""Beginnings of arguments that name no file in the payload."""


def suite_paths(job: Job) -> Iterator[tuple[int, str]]:
    """Yield the files and folders of the payload that pytest's arguments name with certainty.

    Each comes after the index of its argument. There are none with ``--pyargs``, whose
    arguments are modules.
    """
    if "--pyargs" in job.pytest:
        return
    for index, (before, argument) in enumerate(zip(("", *job.pytest), job.pytest, strict=False)):
        is_value = before.startswith("-") and not _NO_VALUE.fullmatch(before)
        if argument and not argument.startswith("-") and not is_value:
            path = argument.partition("::")[0]
            if not _ELSEWHERE.match(path):
                yield index, posixpath.normpath(path)


_TEST_NAMES = ("test_*.py", "*_test.py")
_NOT_OWN = re.compile(r"\..*|node_modules|site-packages")
_RUNNERS = re.compile(r"pytest|unittest|nose|tox|nox|hatch|\bmake\b|discover|\.sh\b|\btests?\b")
"""Words in a command that may run any test file."""
_TESTS_NAMED = 5


def is_test_file(name: str) -> bool:
    """Whether pytest collects a file of this name by default."""
    return any(fnmatchcase(name, pattern) for pattern in _TEST_NAMES)


def own_test_files(names: Iterable[str]) -> list[str]:
    """Return the test files, sorted, without those in hidden folders and installed packages."""
    paths = (PurePosixPath(name) for name in names)
    return sorted(
        path.as_posix()
        for path in paths
        if is_test_file(path.name) and not any(map(_NOT_OWN.fullmatch, path.parts))
    )


def untaken_tests(
    manifest: Manifest, names: Iterable[str], links: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the test files that no job names, in pytest's arguments or in a command.

    There are none if the paths of a suite are unknown, or if a command may run tests.

    Args:
        manifest: The manifest.
        names: Names of the payload's files.
        links: Targets of the payload's links, by name.
    """
    taken: set[str] = set()
    said = []
    for job in manifest.job:
        if job.command:
            said.append(" ".join(job.command))
            continue
        paths = [word.partition("::")[0] for word in job.pytest if not word.startswith("-")]
        inside = {posixpath.normpath(path) for path in paths if path and not _ELSEWHERE.match(path)}
        if not inside or "--pyargs" in job.pytest or any(path[:1] == "@" for path in paths):
            return ()
        taken |= inside
    if any(map(_RUNNERS.search, said)):
        return ()
    for name, target in links.items():
        if any(name == one or one.startswith(f"{name}/") for one in taken) or "." in taken:
            taken.add(posixpath.normpath(posixpath.join(posixpath.dirname(name), target)))
    return tuple(
        name
        for name in own_test_files(names)
        if taken.isdisjoint((name, *map(str, PurePosixPath(name).parents)))
        and not any(PurePosixPath(name).stem in text for text in said)
    )


def untested(manifest: Manifest) -> Iterator[str]:
    """Yield sentences about test files that no job runs or that were not shipped."""
    if manifest.untaken_tests:
        yield f"no job takes {_some_files(manifest.untaken_tests)}"
    if manifest.excluded_tests:
        files = _some_files(manifest.excluded_tests)
        yield f"`exclude` of payload.toml keeps out {files}, with the names of tests"


def _some_files(names: Sequence[str]) -> str:
    more = f" and {len(names) - _TESTS_NAMED} more" if names[_TESTS_NAMED:] else ""
    return f"{', '.join(names[:_TESTS_NAMED])}{more}"


def missing_tests(manifest: Manifest, names: Collection[str]) -> Iterator[tuple[Problem, bool]]:
    """Yield a problem for each path in `pytest` that the payload lacks.

    Each comes with whether an earlier job has a command, which may write the missing file.

    Args:
        manifest: The manifest.
        names: Names of the payload's files.
    """
    folders = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}
    known = {*names, *folders}
    near = sorted(one for one in known if one.endswith(".py") or one in folders - {"."})
    for number, job in enumerate(manifest.job):
        may_be_written = any(other.command for other in manifest.job[:number])
        for index, path in suite_paths(job):
            if path not in known:
                said = f"{job.pytest[index]!r}: the payload has no {path}"
                if set(path) & set("*?["):
                    said += " (pytest expands no pattern)"
                problem = Problem(("job", number, "pytest", index), f"{said}{nearest(path, near)}")
                yield problem, may_be_written


def _job_problems(job: Job, path: tuple[str | int, ...]) -> Iterator[Problem]:
    yield from _identifier_problems(job.id, (*path, "id"))
    if _ATTEMPT_FILE.fullmatch(metrics_artifact(job.id, OUTPUT)):
        message = f"{job.id!r} is taken: a file of each machine has the name of its output"
        yield Problem((*path, "id"), message)
    if bool(job.pytest) == bool(job.command):
        which = "not both" if job.pytest else "with at least one word"
        yield Problem(path, f"job {job.id!r} needs either `pytest` or `command`, {which}")
    elif job.kind == "suite" and not job.pytest:
        yield Problem(
            (*path, "kind"), f"suite {job.id!r} needs `pytest`; with `command` it is a demo"
        )
    elif job.kind != "suite" and job.pytest:
        yield Problem(
            (*path, "kind"), f"{job.kind} {job.id!r} needs `command`; `pytest` is a suite's"
        )
    for key in ("timeout_minutes", "idle_timeout_minutes"):
        minutes = getattr(job, key)
        if minutes is not None and minutes <= 0:
            yield Problem((*path, key), "must be more than 0")
    yield from _variable_problems(job.env, (*path, "env"))
    yield from _device_problems(job, path)
    yield from _metrics_problems(job, path)
    if job.turns and job.kind != "benchmark":
        yield Problem((*path, "turns"), f"only a benchmark takes turns, and this is a {job.kind}")


def _metrics_problems(job: Job, path: tuple[str | int, ...]) -> Iterator[Problem]:
    taken = {metrics_artifact(job.id, OUTPUT): "the job's output"}
    for index, name in enumerate(job.metrics):
        artifact = metrics_artifact(job.id, name)
        is_plain = _METRICS_FILE.fullmatch(name) and not {".", ".."} & set(name.split("/"))
        if not is_plain or len(artifact) > _METRICS_NAME_CHARS:
            message = f"{name!r} must be `output`, or a file below the payload's folder"
            yield Problem((*path, "metrics", index), message)
        elif name in job.metrics[:index]:
            yield Problem((*path, "metrics", index), f"{name!r} occurs twice")
        elif _ATTEMPT_FILE.fullmatch(artifact) or (name != OUTPUT and artifact in taken):
            other = taken.get(artifact, "a file of the attempt")
            message = f"{name!r} and {other} are both stored as {artifact!r}: rename the file"
            yield Problem((*path, "metrics", index), message)
        if name != OUTPUT:
            taken[artifact] = repr(name)


def metrics_artifact(job: str, name: str) -> str:
    """Return the name of the collected artifact for an entry of a job's `metrics`."""
    return output_artifact(job) if name == OUTPUT else f"{job}.{name.replace('/', '-')}"


def output_artifact(job: str) -> str:
    """Return the name of the artifact with the whole output of a job."""
    return f"{job}.txt"


def _device_problems(job: Job, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if job.gpus < 0:
        yield Problem((*path, "gpus"), "must not be negative")
    if job.compute_capability and not CAPABILITY.fullmatch(job.compute_capability):
        message = f'{job.compute_capability!r} is no compute capability such as "8.9"'
        yield Problem((*path, "compute_capability"), message)


def _variable_problems(
    variables: Mapping[str, str], path: tuple[str | int, ...]
) -> Iterator[Problem]:
    for name in variables:
        if not name or "=" in name:
            yield Problem((*path, name), f"{name!r} cannot be the name of a variable")


def _identifier_problems(name: str, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if not IDENTIFIER.fullmatch(name):
        yield Problem(path, f"{name!r} must be letters, digits, '-' and '_' (at most 64)")


def unknown_environment(name: str, manifest: Manifest) -> str:
    """Return the message about an environment that the payload does not have."""
    return f"the payload has no environment {name!r}{nearest(name, manifest.environment_names)}"
