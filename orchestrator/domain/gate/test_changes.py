"""Changes of a job's tests, by name, against the baseline runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

CHECK = "check "
"""Start of the name of a job's own check among its tests."""
METRIC = "metric "
EXIT = "exit code"
"""What each demo, benchmark and use case has, even if it reports nothing else."""
NAMED = 200
"""Maximum added tests that are listed; the total is counted."""
Tests = Counter[str]
"""Node ids in the form of `normal_nodeid`; several tests may share one.

Of a command, `CHECK`, `METRIC` and `EXIT` name what it reports about itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestChanges:
    """Changes against the tests of the baseline."""

    __test__ = False

    runs: tuple[str, ...] = ()
    """Compared runs: those that the gate passed last, and the platform's last green one. Empty
    without any.
    """
    removed: tuple[str, ...] = ()
    """Node ids of any baseline that are absent now, as the baseline had them."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Tests with a confirmed alias, by older name."""
    added: int = 0
    """Number of tests that no baseline has."""
    added_names: tuple[str, ...] = ()
    """The first `NAMED` of these."""
    unknown: bool = False
    """Whether counted tests have no name, so that they cannot be compared."""


@dataclass(frozen=True, slots=True)
class Names:
    """Node ids of a job's tests, by their form of `normal_nodeid`.

    ``t.py::a[1-2]`` and ``t.py::a[2-1]`` are compared as one name twice: which one is gone tells
    only its node id.
    """

    then: Mapping[str, Set[str]] = field(default_factory=dict)
    """Of the baselines."""
    now: Mapping[str, Set[str]] = field(default_factory=dict)

    def removed(self, tests: Tests) -> tuple[str, ...]:
        """Return the node ids of removed tests."""
        return _node_ids(tests, self.then, self.now)

    def added(self, tests: Tests) -> tuple[str, ...]:
        """Return the node ids of added tests."""
        return _node_ids(tests, self.now, self.then)


NO_NAMES = Names()
"""Tests are named in their form of `normal_nodeid`."""


def _node_ids(
    tests: Tests, had: Mapping[str, Set[str]], other: Mapping[str, Set[str]]
) -> tuple[str, ...]:
    """Return a node id of `had` for each test, first those that `other` lacks."""
    found: list[str] = []
    for name, number in tests.items():
        own, theirs = had.get(name, frozenset()), other.get(name, frozenset())
        known = [*sorted(own - theirs), *sorted(own & theirs)]
        found += [*known, *[name] * number][:number]
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class BaselineTests:
    """Collected tests of a baseline, by job."""

    runs: tuple[str, ...]
    by_job: Mapping[str, Tests]


def is_reported(name: str) -> bool:
    """Whether a name is of what a command reports about itself, and not of a test."""
    return name == EXIT or name.startswith((CHECK, METRIC))


def changes_since(
    job: str,
    now: Tests | None,
    baselines: Sequence[BaselineTests],
    *,
    renames: Mapping[str, str],
    left_out: Iterable[str],
    names: Names = NO_NAMES,
) -> TestChanges:
    """Compare the tests of a job with each baseline.

    Args:
        job: Its id.
        now: The collected tests; None if their names are unknown.
        baselines: Any number.
        renames: Confirmed ones, by the older name; a name may have changed more than once.
        left_out: Files and folders that were skipped as a whole or not looked into: what was lost
            there is told of them, and is not told again.
        names: The node ids of the baselines, and those of now.
    """
    then = [one.by_job.get(job, Counter()) for one in baselines]
    runs = tuple(dict.fromkeys(run for one in baselines for run in one.runs))
    if now is None:
        return TestChanges(runs=runs, unknown=True)
    removed, renamed = Counter[str](), dict[str, str]()
    for tests in then:
        gone, moved = _gone(tests, now, renames)
        removed, renamed = removed | gone, {**renamed, **moved}
    places = tuple(f"{place}{end}" for place in left_out for end in ("::", "/"))
    lost = Counter({name: n for name, n in removed.items() if not name.startswith(places)})
    fresh = _fresh(now, then) if runs else Counter[str]()
    fresh = Counter({name: n for name, n in fresh.items() if name not in renamed.values()})
    return TestChanges(
        runs=runs,
        removed=names.removed(lost),
        renamed=dict(sorted(renamed.items())),
        added=fresh.total(),
        added_names=names.added(fresh)[:NAMED],
    )


def _gone(then: Tests, now: Tests, renames: Mapping[str, str]) -> tuple[Tests, dict[str, str]]:
    """Return absent tests, without those that have a confirmed new name."""
    gone, new, moved = then - now, now - then, dict[str, str]()
    for name in sorted(gone):
        name_now = _newest(name, renames)
        if name_now != name and new[name_now] > 0:
            new[name_now] -= 1
            gone[name] -= 1
            moved[name] = name_now
    return +gone, moved


def _newest(name: str, renames: Mapping[str, str]) -> str:
    seen = {name}
    while (later := renames.get(name, name)) not in seen:
        seen.add(later)
        name = later
    return name


def _fresh(now: Tests, then: Sequence[Tests]) -> Tests:
    known = Counter[str]()
    for tests in then:
        known |= tests
    return now - known
