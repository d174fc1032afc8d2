"""Identity of tests over versions: parsed names, changes between two sets, and aliases.

Tests that were moved, renamed or written with their parameters in another order are suggested as
aliases, and a person confirms them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from orchestrator.domain.grouping import grouped

ALIKE = 0.8
"""From 0 to 1: names of one class this similar may be one renamed test."""
_COMPARED = 250_000
"""Maximum pairs of names per similarity query."""


@dataclass(frozen=True, slots=True)
class TestName:
    """A parsed node id."""

    __test__ = False

    path: str
    classes: str
    """``Outer::Inner``; empty for a plain function."""
    function: str
    parameters: tuple[str, ...]
    """Sorted: their order in brackets depends on pytest's version."""

    @property
    def without_parameters(self) -> str:
        """``path::classes::function``."""
        return "::".join(part for part in (self.path, self.classes, self.function) if part)


def split_nodeid(nodeid: str) -> tuple[str, str, str, str]:
    """Split a node id into path, classes, function and parameters; absent parts are empty."""
    head, bracket, param = nodeid.partition("[")
    path, *names = head.split("::")
    if not names:  # a module that could not be collected; its path may hold a bracket
        return nodeid, "", "", ""
    return path, "::".join(names[:-1]), names[-1], param.removesuffix("]") if bracket else ""


def take_apart(nodeid: str) -> TestName:
    """Split a node id into path, classes, function and the sorted parts of its parameters."""
    path, classes, function, param = split_nodeid(nodeid)
    path = path.replace("\\", "/").removeprefix("./")
    return TestName(path, classes, function, tuple(sorted(_PARTS.split(param))) if param else ())


_DIGITS = re.compile(r"([0-9]+)")


NaturalOrder = tuple[tuple[str, int, str, str], ...]


def natural_order(nodeid: str) -> NaturalOrder:
    """Return the key of a node id's order for people: ``[2]`` before ``[10]``."""
    parts = [*_DIGITS.split(nodeid), ""]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    figures = ((text, number.lstrip("0"), number) for text, number in pairs)
    return tuple((text, len(digits), digits, number) for text, digits, number in figures)


def normal_nodeid(nodeid: str) -> str:
    """Normalise a node id: ``/`` in its path, parameters sorted."""
    name = take_apart(nodeid)
    where = name.without_parameters
    return f"{where}[{'-'.join(name.parameters)}]" if name.parameters else where


_PARTS = re.compile(r"(?<=[^-])-(?=.)")
"""Separators of parameters; a sign stays with its number."""
_FAMILY = re.compile(r"[-_ ]*(?:tests?|suite|v?\d+(?:\.\d+)+)$")


def job_family(job: str) -> str:
    """Return the common name of jobs with the same tests: ``moe-tests`` is ``moe``."""
    family = job.lower()
    while (shorter := _FAMILY.sub("", family)) != family and shorter:
        family = shorter
    return family


class NameChange(StrEnum):
    """The change of a test's name."""

    PARAMETERS = "parameters"
    """The order of its parameters."""
    MOVED = "moved"
    """Another class or file."""
    RENAMED = "renamed"
    """Another function in the same class and file."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested alias: two names that may be one test."""

    old: str
    new: str
    change: NameChange
    similarity: float
    """From 0 to 1."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """Changes of test names from an older set to a newer one."""

    same: tuple[str, ...]
    """Names in both sets, and new names with a confirmed alias."""
    suggestions: tuple[Suggestion, ...]
    """Suggested aliases, not confirmed."""
    new: tuple[str, ...]
    gone: tuple[str, ...]
    ambiguous: tuple[str, ...] = ()
    """New names that match several old ones."""

    @property
    def total(self) -> int:
        """Number of tests in the newer set."""
        return len(self.same) + len(self.suggestions) + len(self.new)

    def __str__(self) -> str:
        """``66 = 64 same + 1 moved + 1 new, 1 gone``."""
        parts = [f"{len(self.same)} same"]
        for change, word in _WORDS.items():
            number = sum(1 for one in self.suggestions if one.change is change)
            parts += [f"{number} {word}"] if number else []
        parts += [f"{len(self.new)} new"] if self.new else []
        gone = f", {len(self.gone)} gone" if self.gone else ""
        return f"{self.total} = {' + '.join(parts)}{gone}"


_WORDS = {
    NameChange.MOVED: "moved",
    NameChange.RENAMED: "renamed",
    NameChange.PARAMETERS: "with parameters in another order",
}


def compare_names(
    old: Collection[str],
    new: Collection[str],
    alike: Callable[[str, str], float],
    *,
    confirmed: Mapping[str, str] | None = None,
    rejected: Collection[tuple[str, str]] = (),
) -> NameChanges:
    """Compare an older and a newer set of test names.

    Args:
        old: Node ids of the older version.
        new: Node ids of the newer one.
        alike: From 0 to 1, how alike two function names are.
        confirmed: By an older name, the one that it has now, as persons confirmed it.
        rejected: Pairs (older, newer) that a person said are two tests.
    """
    ours, theirs = set(old), set(new)
    same = ours & theirs
    known = {was: now for was, now in (confirmed or {}).items() if was in ours and now in theirs}
    gone = {name: take_apart(name) for name in sorted(ours - same - set(known))}
    come = {name: take_apart(name) for name in sorted(theirs - same - set(known.values()))}
    search = _NameMatching(gone, come, frozenset(rejected))
    search.by_key(NameChange.PARAMETERS, lambda n: (n.path, n.classes, n.function, n.parameters))
    search.by_key(NameChange.MOVED, lambda n: (n.function, n.parameters))
    search.by_similarity(alike)
    return NameChanges(
        tuple(sorted(same | set(known.values()))),
        tuple(search.found),
        tuple(search.come),
        tuple(search.gone),
        tuple(sorted(search.ambiguous & set(search.come))),
    )


class _NameMatching:
    """Matches removed with added names; each name is used at most once."""

    def __init__(
        self,
        gone: dict[str, TestName],
        come: dict[str, TestName],
        rejected: frozenset[tuple[str, str]],
    ) -> None:
        self.gone, self.come = gone, come
        self.rejected = rejected
        self.found: list[Suggestion] = []
        self.ambiguous: set[str] = set()

    def by_key(self, change: NameChange, key: Callable[[TestName], object]) -> None:
        """Match names with equal keys, unless a key is shared."""
        before, after = _grouped(self.gone, key), _grouped(self.come, key)
        for shared, names in after.items():
            olds = before.get(shared, [])
            pairs = [(o, n) for o in olds[:_FEW] for n in names[:_FEW]]
            pairs = [pair for pair in pairs if pair not in self.rejected]
            if len(pairs) == 1:
                self._take(Suggestion(*pairs[0], change, 1.0))
            elif pairs:
                self.ambiguous.update(names)

    def by_similarity(self, alike: Callable[[str, str], float]) -> None:
        """Match the most similar functions of one class and file with the same parameters."""
        for similarity, old, new in sorted(self._likely(alike), key=lambda p: (-p[0], p[1], p[2])):
            if old in self.gone and new in self.come:
                self._take(Suggestion(old, new, NameChange.RENAMED, round(similarity, 3)))

    def _likely(self, alike: Callable[[str, str], float]) -> Iterable[tuple[float, str, str]]:
        left = _COMPARED
        before = _grouped(self.gone, _place)
        for new, name in self.come.items():
            olds = before.get(_place(name), [])[: max(left, 0)]
            left -= len(olds)
            for old in olds:
                similarity = alike(self.gone[old].function, name.function)
                if similarity >= ALIKE and (old, new) not in self.rejected:
                    yield similarity, old, new

    def _take(self, one: Suggestion) -> None:
        del self.gone[one.old], self.come[one.new]
        self.found.append(one)


_FEW = 8


def _place(name: TestName) -> object:
    return (name.path, name.classes, name.parameters)


def _grouped(
    names: Mapping[str, TestName], key: Callable[[TestName], object]
) -> dict[object, list[str]]:
    return grouped((key(name), nodeid) for nodeid, name in names.items())


N = TypeVar("N", int, str)


def resolve(name: N, aliases: Mapping[N, N]) -> N:
    """Return the newest test, an id or a name, of a chain of confirmed aliases."""
    seen = {name}
    while (now := aliases.get(name)) is not None and now not in seen:
        seen.add(now)
        name = now
    return name


def makes_a_circle(old: int, new: int, aliases: Mapping[int, int]) -> bool:
    """Whether a further alias would make the chain circular."""
    return old == new or resolve(new, aliases) == old


class AliasState(StrEnum):
    """The decision on an alias."""

    SUGGESTED = "suggested"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names that may be one test, and the decision of a person on that."""

    id: int
    product: str
    job: str
    """Job of the newer name."""
    old_test: int
    """Database id of the test under its older name."""
    old: str
    """The node id of the older name."""
    new_test: int
    new: str
    change: NameChange
    similarity: float
    """From 0 to 1."""
    state: AliasState
    suggested_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class KnownTest:
    """A test of a product, on any platform."""

    id: int
    product: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTestResponse(KnownTest):
    """A test with its present name."""

    now: int | None
    """The test that replaces it, as a person confirmed; None if it has no newer name."""


@dataclass(frozen=True, slots=True)
class FamilyChanges:
    """Changes of test names within one family of jobs."""

    family: str
    changes: NameChanges

    @property
    def summary(self) -> str:
        """Counts of a family's tests: ``66 = 64 same + 1 moved + 1 new, 1 gone``."""
        return str(self.changes)


@dataclass(frozen=True, slots=True)
class Matching:
    """Matching of the tests of an older run with those of a newer one."""

    old_run: str
    new_run: str
    families: tuple[FamilyChanges, ...]
    """The job families that both runs have."""
    suggestions: tuple[Alias, ...]
    """Suggested aliases, stored; a person confirms or rejects them."""
