"""Identity of tests over versions: parsed node ids, changes of names, and aliases.

Tests that were moved or renamed, or whose parameters are in another order, are suggested as
aliases, which a person confirms.
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
"""Minimum similarity (0 to 1) of two names of one class that may be a renamed test."""
_COMPARED = 250_000
"""Maximum number of pairs of names that are compared by similarity."""


@dataclass(frozen=True, slots=True)
class TestName:
    """A node id in its parts."""

    __test__ = False

    path: str
    classes: str
    """Names of the classes, ``Outer::Inner``; empty for a plain function."""
    function: str
    parameters: tuple[str, ...]
    """Sorted parameters, because their order depends on the version of pytest."""

    @property
    def without_parameters(self) -> str:
        """The node id without its parameters: ``path::classes::function``."""
        return "::".join(part for part in (self.path, self.classes, self.function) if part)


def split_nodeid(nodeid: str) -> tuple[str, str, str, str]:
    """Split a node id into path, classes, function and parameters; missing parts are empty."""
    head, bracket, param = nodeid.partition("[")
    path, *names = head.split("::")
    if not names:  # a module that could not be collected; its path may have a bracket
        return nodeid, "", "", ""
    return path, "::".join(names[:-1]), names[-1], param.removesuffix("]") if bracket else ""


def take_apart(nodeid: str) -> TestName:
    """Return the parts of a node id, with sorted parameters."""
    path, classes, function, param = split_nodeid(nodeid)
    path = path.replace("\\", "/").removeprefix("./")
    return TestName(path, classes, function, tuple(sorted(_PARTS.split(param))) if param else ())


_DIGITS = re.compile(r"([0-9]+)")


NaturalOrder = tuple[tuple[str, int, str, str], ...]


def natural_order(nodeid: str) -> NaturalOrder:
    """Return a sort key for node ids that sorts numbers by value: ``[2]`` before ``[10]``."""
    parts = [*_DIGITS.split(nodeid), ""]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    figures = ((text, number.lstrip("0"), number) for text, number in pairs)
    return tuple((text, len(digits), digits, number) for text, digits, number in figures)


def normal_nodeid(nodeid: str) -> str:
    """Return the node id with ``/`` in its path and sorted parameters."""
    name = take_apart(nodeid)
    where = name.without_parameters
    return f"{where}[{'-'.join(name.parameters)}]" if name.parameters else where


_PARTS = re.compile(r"(?<=[^-])-(?=.)")
"""Separators of parameters; the sign of a number is no separator."""
_FAMILY = re.compile(r"[-_ ]*(?:tests?|suite|v?\d+(?:\.\d+)+)$")


def job_family(job: str) -> str:
    """Return the common name of jobs with the same tests: ``moe`` for ``moe-tests``."""
    family = job.lower()
    while (shorter := _FAMILY.sub("", family)) != family and shorter:
        family = shorter
    return family


class NameChange(StrEnum):
    """What changed in the name of a test."""

    PARAMETERS = "parameters"
    """The order of its parameters."""
    MOVED = "moved"
    """Its class or file."""
    RENAMED = "renamed"
    """Its function, in the same class and file."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested alias: two names that may belong to one test."""

    old: str
    new: str
    change: NameChange
    similarity: float
    """Similarity of the names, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """The differences between an older and a newer set of test names."""

    same: tuple[str, ...]
    """Names in both sets, and new names with a confirmed alias."""
    suggestions: tuple[Suggestion, ...]
    """Suggested aliases, which are not confirmed."""
    new: tuple[str, ...]
    gone: tuple[str, ...]
    ambiguous: tuple[str, ...] = ()
    """New names that may match several old ones."""

    @property
    def total(self) -> int:
        """Number of tests in the newer set."""
        return len(self.same) + len(self.suggestions) + len(self.new)

    def __str__(self) -> str:
        """Return the numbers in words: ``66 = 64 same + 1 moved + 1 new, 1 gone``."""
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
        new: Node ids of the newer version.
        alike: Returns the similarity (0 to 1) of two function names.
        confirmed: New names by old ones, as persons confirmed them.
        rejected: Pairs (older, newer) of different tests, as persons decided.
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
    """Matches removed names with added names; each name is used at most once."""

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
        """Match names with equal keys if exactly one pair of the key is not rejected."""
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
        """Match the most similar function names of one class and file with the same parameters."""
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
    """Return the newest test (id or name) in a chain of confirmed aliases."""
    seen = {name}
    while (now := aliases.get(name)) is not None and now not in seen:
        seen.add(now)
        name = now
    return name


def makes_a_circle(old: int, new: int, aliases: Mapping[int, int]) -> bool:
    """Whether another alias would close the chain of aliases to a circle."""
    return old == new or resolve(new, aliases) == old


class AliasState(StrEnum):
    """State of an alias."""

    SUGGESTED = "suggested"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names that may belong to one test, with the decision of a person."""

    id: int
    product: str
    job: str
    """Job of the newer name."""
    old_test: int
    """Database id of the test with the older name."""
    old: str
    """Node id of the older name."""
    new_test: int
    new: str
    change: NameChange
    similarity: float
    """Similarity of the names, from 0 to 1."""
    state: AliasState
    suggested_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class KnownTest:
    """A test of a product on any platform."""

    id: int
    product: str
    job: str
    nodeid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTestResponse(KnownTest):
    """A test with its successor."""

    now: int | None
    """Id of the test that replaces it, as a person confirmed; None if it has no newer name."""


@dataclass(frozen=True, slots=True)
class FamilyChanges:
    """The changes of test names within one family of jobs."""

    family: str
    changes: NameChanges

    @property
    def summary(self) -> str:
        """The changes in words: ``66 = 64 same + 1 moved + 1 new, 1 gone``."""
        return str(self.changes)


@dataclass(frozen=True, slots=True)
class Matching:
    """The result of comparing the tests of an older run with those of a newer run."""

    old_run: str
    new_run: str
    families: tuple[FamilyChanges, ...]
    """The job families that both runs have, with their changes."""
    suggestions: tuple[Alias, ...]
    """The suggested aliases, which are stored; a person confirms or rejects them."""
