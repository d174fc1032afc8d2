"""Which tests a suite collected, and which options, files or hooks left tests out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.untyped_values import text_of, whole_of

NAMED = 200
"""Maximum names kept of each list; counts are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deselection:
    """Tests that were collected and then deselected."""

    by: str
    """An option of pytest (``-k``), or the payload's files that may have done it."""
    count: int
    tests: tuple[str, ...] = ()
    asked: bool = False
    """Whether the job's own arguments contain the option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPath:
    """A file or folder that was not collected."""

    path: str
    why: str
    """The skip reason, or what excluded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A pytest hook that can change outcomes, in an unknown file.

    A hook of pytest that the file implements; a function of pytest's or of the subject's, by its
    full name, that the file replaces; or, in words, what a test or an option does.
    """

    name: str
    file: str

    @property
    def is_implemented(self) -> bool:
        """Whether it is a hook of pytest that the file implements."""
        return not {" ", "."} & set(self.name)

    @property
    def sentence(self) -> str:
        """Describe what the file, test or option does."""
        if " " in self.name:
            return f"{self.file} {self.name}"
        return f"{self.file} {'replaces' if '.' in self.name else 'implements'} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """The test set of a suite, as its last process reported it."""

    __test__ = False

    digest: str = ""
    """sha256 of the sorted node ids to run; empty if it was not reported."""
    collected: int = 0
    deselected: tuple[Deselection, ...] = ()
    modules: tuple[SkippedPath, ...] = ()
    """Modules that were skipped as a whole."""
    ignored: tuple[SkippedPath, ...] = ()
    hidden: tuple[str, ...] = ()
    """Files that could not be collected."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that can change outcomes."""
    subject_modules: int | None = field(default=None, metadata=LATER)
    """Maximum number of the subject's modules that a process of the job loaded; None without a
    subject or a report.
    """
    subject_names: tuple[str, ...] = field(default=(), metadata=LATER)
    """Import names of the subject."""

    @property
    def unasked(self) -> tuple[Deselection, ...]:
        """Return exclusions that the job's arguments do not request."""
        return tuple(one for one in self.deselected if not one.asked)


def read_test_set(data: Mapping[str, object]) -> TestSet:
    """Parse the test set of an event; malformed parts are ignored."""
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
