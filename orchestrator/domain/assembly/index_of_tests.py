"""Index of the tests of all artifacts, by digests of their node ids."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from orchestrator.domain.ingested import Disagreement
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import Provenance

DISAGREEMENTS_LIMIT = 1_000
_RANK = {
    Provenance.TRANSCRIBED: 0,
    Provenance.PARSED_TEXT: 1,
    Provenance.STRUCTURED: 2,
    Provenance.AGENT: 3,
}
_PLACE_BITS, _SOURCE_BITS, _RANK_BITS = 44, 16, 2
_REPEATED = 1 << (_PLACE_BITS + _SOURCE_BITS + _RANK_BITS + 4)


def key_of(nodeid: str) -> bytes:
    """Return the digest of a node id."""
    return hashlib.blake2b(nodeid.encode("utf-8", "replace"), digest_size=16).digest()


@dataclass(slots=True)
class ArtifactTests:
    """The tests of one artifact."""

    tests: dict[bytes, TestOutcome] = field(default_factory=dict)
    """The worst outcome of each test."""
    lines: Counter[str] = field(default_factory=Counter)
    """Number of statements about tests, by outcome."""
    groups: Counter[str] = field(default_factory=Counter)
    """Number of distinct tests, by group."""


class TestIndex:
    """The tests of all artifacts. The winner of a test is the record that decides its result."""

    def __init__(self) -> None:
        self._tests: dict[bytes, int] = {}
        self._conflicts: dict[bytes, tuple[str, list[tuple[int, TestOutcome]]]] = {}
        self.groups: Counter[str] = Counter()
        """Number of distinct tests in all artifacts, by group."""
        self.repeated = 0
        self.unlisted = 0
        """Number of disagreements that are not stored."""

    def add(
        self,
        nodeid: str,
        outcome: TestOutcome,
        *,
        group: str,
        source: int,
        provenance: Provenance,
        place: int,
        artifact_tests: ArtifactTests,
    ) -> None:
        """Add a statement about a test; `place` is the position of its record."""
        key = key_of(nodeid)
        artifact_tests.lines[outcome.word] += 1
        if key not in artifact_tests.tests:
            artifact_tests.groups[group] += 1
        artifact_tests.tests[key] = max(artifact_tests.tests.get(key, TestOutcome.MISSING), outcome)
        mine = _packed(outcome, _RANK[provenance], source, place)
        known = self._tests.get(key)
        if known is None:
            self._tests[key] = mine
            self.groups[group] += 1
            return
        self._again(key, nodeid, known, mine)

    def winner(self, nodeid: str) -> int:
        """Return the position of the test's winner; -1 if no artifact names the test."""
        known = self._tests.get(key_of(nodeid))
        return -1 if known is None else known & ((1 << _PLACE_BITS) - 1)

    def knows(self, nodeid: str) -> bool:
        """Whether any artifact names the test."""
        return key_of(nodeid) in self._tests

    def winners(self, keys: Iterable[bytes]) -> set[int]:
        """Return the numbers of the artifacts that have the winners of these tests."""
        return {_source(self._tests[key]) for key in keys}

    def conflicts(self) -> Iterator[tuple[str, list[tuple[int, TestOutcome]]]]:
        """Yield (node id, [(artifact, outcome)]) of each test with different outcomes."""
        yield from self._conflicts.values()

    def _again(self, key: bytes, nodeid: str, known: int, mine: int) -> None:
        elsewhere = _source(known) != _source(mine)
        if elsewhere and not known & _REPEATED:
            self.repeated += 1
            known |= _REPEATED
            self._tests[key] = known
        if elsewhere and _outcome(known) is not _outcome(mine):
            self._differ(key, nodeid, known, mine)
        if _strength(mine) > _strength(known):
            self._tests[key] = mine | (known & _REPEATED)

    def _differ(self, key: bytes, nodeid: str, known: int, mine: int) -> None:
        """Store a disagreement; a test without a known end disagrees with none."""
        if TestOutcome.MISSING in (_outcome(known), _outcome(mine)):
            return
        if key not in self._conflicts and len(self._conflicts) >= DISAGREEMENTS_LIMIT:
            self.unlisted += 1
            return
        _, said = self._conflicts.setdefault(key, (nodeid, [(_source(known), _outcome(known))]))
        if all(source != _source(mine) for source, _ in said):
            said.append((_source(mine), _outcome(mine)))


def disagreement(
    job: str, nodeid: str, outcomes: list[tuple[int, TestOutcome]], names: list[str]
) -> Disagreement:
    """Return a disagreement with the names of the artifacts."""
    told = tuple((names[source], outcome.word) for source, outcome in outcomes)
    return Disagreement(job=job, nodeid=nodeid, sources=told)


def _packed(outcome: TestOutcome, rank: int, source: int, place: int) -> int:
    number = outcome.value << _RANK_BITS | rank
    return (number << _SOURCE_BITS | source) << _PLACE_BITS | place


def _source(packed: int) -> int:
    return packed >> _PLACE_BITS & ((1 << _SOURCE_BITS) - 1)


def _strength(packed: int) -> int:
    return (packed & ~_REPEATED) >> (_PLACE_BITS + _SOURCE_BITS)


def _outcome(packed: int) -> TestOutcome:
    return TestOutcome(_strength(packed) >> _RANK_BITS)
