"""The tests that a suite collected, and the options, files and hooks that left out tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.untyped_values import text_of, whole_of

NAMED = 200
"""Maximum number of names in each list; counts are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deselection:
    """Tests that were collected and then deselected by one cause."""

    by: str
    """The cause: an option of pytest such as ``-k``, or files of the payload."""
    count: int
    tests: tuple[str, ...] = ()
    asked: bool = False
    """Whether the job's own arguments have the option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPath:
    """A file or folder that was not collected."""

    path: str
    why: str
    """The reason of the skip, or what excluded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A pytest hook, replacement or option that can change outcomes.

    `name` is a hook of pytest that the file implements; the full name of a function of pytest
    or of the subject that the file replaces; or words that describe what a test or an option
    does.
    """

    name: str
    file: str

    @property
    def is_implemented(self) -> bool:
        """Whether the file implements a hook of pytest."""
        return not {" ", "."} & set(self.name)

    @property
    def sentence(self) -> str:
        """What the file, test or option does, in words."""
        if " " in self.name:
            return f"{self.file} {self.name}"
        return f"{self.file} {'replaces' if '.' in self.name else 'implements'} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """The test set of a suite, as reported by the last process of the suite."""

    __test__ = False

    digest: str = ""
    """sha256 of the sorted node ids that run; empty if it was not reported."""
    collected: int = 0
    deselected: tuple[Deselection, ...] = ()
    modules: tuple[SkippedPath, ...] = ()
    """Modules that were skipped as a whole."""
    ignored: tuple[SkippedPath, ...] = ()
    hidden: tuple[str, ...] = ()
    """Files that could not be collected."""
    hooks: tuple[Hook, ...] = ()
    """Hooks and replacements that can change outcomes."""
    subject_modules: int | None = field(default=None, metadata=LATER)
    """Maximum number of the subject's modules that a process of the job loaded; None without a
    subject or a report."""
    subject_names: tuple[str, ...] = field(default=(), metadata=LATER)
    """Names by which the subject is imported."""

    @property
    def unasked(self) -> tuple[Deselection, ...]:
        """The deselections that the job's arguments do not request."""
        return tuple(one for one in self.deselected if not one.asked)


def read_test_set(data: Mapping[str, object]) -> TestSet:
    """Return the test set of an event; malformed parts are ignored."""
    return TestSet(
        digest=text_of(data.get("digest")),
        collected=_count(data.get("collected")),
        deselected=tuple(
            _deselection(row) for row in _list(data.get("deselected")) if isinstance(row, dict)
        ),
        modules=tuple(_places(data.get("modules"))),
        ignored=tuple(_places(data.get("ignored"))),
        hidden=_texts(data.get("hidden")),
        hooks=tuple(Hook(name=name, file=file) for name, file in _pairs(data.get("hooks"))),
        subject_modules=whole_of(data.get("subject_modules")),
        subject_names=_texts(data.get("subject_names")),
    )


def _deselection(row: Mapping[str, object]) -> Deselection:
    return Deselection(
        by=text_of(row.get("by")),
        count=_count(row.get("count")),
        tests=_texts(row.get("tests")),
        asked=row.get("asked") is True,
    )


def _places(value: object) -> Iterable[SkippedPath]:
    for path, why in _pairs(value):
        yield SkippedPath(path=path, why=why.removeprefix("Skipped: "))


def _pairs(value: object) -> Iterable[tuple[str, str]]:
    for row in _list(value):
        if isinstance(row, list) and len(row) == 2:
            yield text_of(row[0]), text_of(row[1])


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text_of(each) for each in _list(value))


def _list(value: object) -> list[object]:
    return value[:NAMED] if isinstance(value, list) else []


def _count(value: object) -> int:
    return max(whole_of(value) or 0, 0)
