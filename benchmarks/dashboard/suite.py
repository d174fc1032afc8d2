"""The product's tests and their results in a cell: most pass, and failures have patterns."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain

import numpy as np

from benchmarks.dashboard.plans import PRODUCT, Machine
from benchmarks.dashboard.sizes import Size
from benchmarks.dashboard.words import (
    SKIPS,
    XFAIL,
    Trouble,
    harmful,
    nodeids,
    spoil,
    troubles,
)
from orchestrator.domain.event_facts import MESSAGE_LIMIT, TestFact
from orchestrator.domain.failure_signature import Signature, signature_of
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.database import Database
from orchestrator.store.failure_groups import write_signatures
from orchestrator.store.write_results import TestCases

_TOLD = 6
"""Number of variants of each failure's message, with other addresses and numbers."""
_NOISES = 24


@dataclass(frozen=True, slots=True)
class Bad:
    """A result of a test other than a plain pass."""

    outcome: TestOutcome
    reason: str = ""
    message: str = ""
    digest: bytes | None = None
    signature: str | None = None
    earlier: str = ""


@dataclass(frozen=True, slots=True)
class Streak:
    """A kind of failure that lasts for some nights, on some machines."""

    nights: range
    machines: frozenset[str]
    tests: range
    ways: tuple[Bad, ...]


@dataclass(slots=True)
class Went:
    """Results of a cell's tests."""

    ids: Sequence[int]
    durations: Sequence[int]
    suites: Mapping[str, tuple[int, int]]
    """First position of each suite, and one past its last."""
    bad: dict[int, Bad]
    """Results by position; all other tests passed."""

    def tally(self, suite: str) -> dict[TestOutcome, int]:
        """Return the number of tests of a suite by outcome."""
        first, last = self.suites[suite]
        counted = {TestOutcome.PASSED: last - first}
        for position, one in self.bad.items():
            if first <= position < last and one.outcome is not TestOutcome.PASSED:
                counted[one.outcome] = counted.get(one.outcome, 0) + 1
                counted[TestOutcome.PASSED] -= 1
        return {outcome: number for outcome, number in counted.items() if number}


@dataclass
class Suite:
    """Every test that ever existed, in the order in which it was written."""

    size: Size
    chance: random.Random
    hostile: bool = False
    texts: dict[bytes, bytes] = field(default_factory=dict)
    """Compressed tracebacks by digest."""
    signatures: dict[str, Signature] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size, chance = self.size, self.chance
        named = nodeids(size.tests)
        self.named = spoil(named, chance) if self.hostile else named
        self._since = self._arrivals()
        noise = np.random.default_rng(chance.randrange(2**31))
        base = noise.lognormal(10.5, 1.3, size.tests)
        spread = noise.lognormal(0, 0.15, (_NOISES, size.tests))
        self._took: list[list[int]] = np.maximum(base * spread, 50).astype(int).tolist()
        self._skipped = {
            reason: frozenset(chance.sample(range(size.tests), max(1, size.tests * part // 1000)))
            for reason, part in (("device", 45), ("devices", 15), ("capability", 20))
        }
        self._xfailed = frozenset(chance.sample(range(size.tests), max(1, size.tests // 150)))
        flaky = chance.sample(range(size.tests), max(3, size.tests // 90))
        self.flaky = {index: chance.choice((0.04, 0.1, 0.25)) for index in flaky}
        self._flaking = {index: self._ways(self._one_trouble(), index) for index in flaky}
        self.streaks = [self._streak(trouble) for trouble in troubles(size.streaks)]
        self._broken = Bad(
            TestOutcome.ERROR, "setup", *self._say(_FIXTURE, 1, self.named[0][1], "setup")
        )
        self._hung = Bad(TestOutcome.FAILED, "hung", *self._say(_HUNG, 1, "", "hung"))
        self.ids: list[int] = []

    def store(self, database: Database) -> None:
        """Store the tests and the failures' signatures by the product's own functions."""
        facts = {(job, nodeid): TestFact(job, nodeid) for job, nodeid in self.named}
        numbered = TestCases(database.sessions).number(PRODUCT, facts, run="filled")
        by_key = {(fact.job, fact.nodeid): number for number, fact in numbered.items()}
        self.ids = [by_key[key] for key in self.named]
        with database.sessions.write() as session:
            write_signatures(session, self.signatures.values())

    def go(
        self, night: int, machine: Machine, chance: random.Random, *, calm: bool = False
    ) -> Went:
        """Return the results of one cell and night; if `calm`, only expected failures and skips."""
        positions = self._written_by(night)
        took = self._took[chance.randrange(_NOISES)]
        went = Went(
            ids=[self.ids[index] for index in positions],
            durations=[took[index] for index in positions],
            suites=self._spans(positions),
            bad={},
        )
        at = {index: position for position, index in enumerate(positions)}
        badly = self._expected(machine, chance)
        for index, bad in badly if calm else chain(badly, self._badly(night, machine, chance)):
            if index in at:
                went.bad[at[index]] = bad
        return went

    def hang(self, went: Went, chance: random.Random) -> str:
        """Make a random test hang and the later ones of its suite not run; return the suite."""
        suite = chance.choice(sorted(went.suites))
        first, last = went.suites[suite]
        position = chance.randrange(first, last)
        went.bad[position] = self._hung
        for after in range(position + 1, last):
            went.bad[after] = Bad(TestOutcome.NOT_RUN)
        return suite

    def lose(self, went: Went, chance: random.Random) -> int:
        """Mark the tests from a random position on as missing; return the position."""
        total = len(went.ids)
        position = chance.randrange(total // 3, total)
        for after in range(position, total):
            went.bad[after] = Bad(TestOutcome.MISSING)
        return position

    def break_fixture(self, went: Went, chance: random.Random) -> None:
        """Make the tests of about a file fail in their setup."""
        first = chance.randrange(len(went.ids))
        for position in range(first, min(first + len(went.ids) // 60 + 2, len(went.ids))):
            went.bad[position] = self._broken

    def _badly(
        self, night: int, machine: Machine, chance: random.Random
    ) -> Iterator[tuple[int, Bad]]:
        for index, odds in self.flaky.items():
            if chance.random() < odds:
                way = chance.choice(self._flaking[index])
                again = chance.random() < 0.7
                yield index, Bad(TestOutcome.PASSED, earlier="failed") if again else way
        for streak in self.streaks:
            if night in streak.nights and machine.id in streak.machines:
                for index in streak.tests:
                    yield index, streak.ways[(index + night) % len(streak.ways)]

    def _expected(self, machine: Machine, chance: random.Random) -> Iterator[tuple[int, Bad]]:
        kinds = ["devices"]
        if machine.vendor != "nvidia":
            kinds.append("device")
        elif machine.capability < "8.9":
            kinds.append("capability")
        for kind in kinds:
            for index in self._skipped[kind]:
                yield index, Bad(TestOutcome.SKIPPED, self._worded(SKIPS[kind], index))
        for index in self._xfailed:
            outcome = TestOutcome.XPASSED if chance.random() < 0.02 else TestOutcome.XFAILED
            yield index, Bad(outcome, self._worded(XFAIL, index))

    def _worded(self, reason: str, index: int) -> str:
        if not self.hostile or index % 3:
            return reason
        return harmful(index, length=1_000_000 if index % 97 == 0 else 0)

    def _arrivals(self) -> list[int]:
        """Return by test its first night; one in ten tests is added later than the first night."""
        nights = self.size.nights
        return [
            self.chance.randrange(nights) if self.chance.random() < 0.1 else 0
            for _ in range(self.size.tests)
        ]

    def _written_by(self, night: int) -> list[int]:
        return [index for index, since in enumerate(self._since) if since <= night]

    def _spans(self, positions: Sequence[int]) -> dict[str, tuple[int, int]]:
        units = sum(1 for index in positions if self.named[index][0] == "unit")
        return {"unit": (0, units), "integration": (units, len(positions))}

    def _streak(self, trouble: Trouble) -> Streak:
        chance, size = self.chance, self.size
        first = chance.randrange(-3, size.nights)
        long = chance.choice((1, 2, 3, 5, 8, 13, 21))
        machines = chance.sample(_MACHINE_IDS, chance.choice((1, 1, 2, 3, len(_MACHINE_IDS))))
        count = chance.choice((1, 2, 4, 8, min(30, size.tests // 20 + 1)))
        begin = chance.randrange(size.tests - count)
        ways = self._ways(trouble, begin)
        return Streak(
            range(first, first + long), frozenset(machines), range(begin, begin + count), ways
        )

    def _one_trouble(self) -> Trouble:
        return self.chance.choice(troubles(12))

    def _ways(self, trouble: Trouble, index: int) -> tuple[Bad, ...]:
        nodeid = self.named[index][1]
        return tuple(
            Bad(TestOutcome.FAILED, trouble.reason, *self._say(trouble, index * _TOLD + n, nodeid))
            for n in range(_TOLD)
        )

    def _say(
        self, trouble: Trouble, number: int, nodeid: str, reason: str = ""
    ) -> tuple[str, bytes, str]:
        """Return message, digest of the traceback, and signature, as the product makes them."""
        said, text = trouble.told(number, nodeid or "tests/unit/test_streams.py::test_hangs")
        if self.hostile and number % 2:
            said = f"{said} {harmful(number)}"
            text = text.replace("\nE ", f"\n{harmful(number, length=_long(number))}\nE ")
        said = said[:MESSAGE_LIMIT].replace("\n", " ").replace("\x00", "")
        fact = TestFact("", "", TestOutcome.FAILED, True, 0.0, reason, said, text)
        signature = signature_of(fact)
        assert signature is not None
        self.signatures[signature.id] = signature
        digest = sha256(text.encode()).digest()
        self.texts.setdefault(digest, zlib.compress(text.encode(), 6))
        return said, digest, signature.id


def _long(number: int) -> int:
    return 1_000_000 if number % 41 == 1 else 200


_FIXTURE = Trouble("RuntimeError", "the model server did not answer in {n} s", "conftest.py", "up")
_HUNG = Trouble("Failed", "no sign of life for 600 s", "aurora/streams/launch.py", "synchronize")
_MACHINE_IDS = (
    "aws-l4", "gcp-a100", "gcp-tpu-v5e", "aws-graviton", "gcp-t4", "aws-a10g", "gcp-h100",
    "gcp-l4", "aws-x86",
)  # fmt: skip
