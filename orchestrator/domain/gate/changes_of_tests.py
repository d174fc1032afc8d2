"""Changes of a job's tests, by name, against the runs of the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

CHECK = "check "
"""Prefix of a job's own check among the names of its tests."""
METRIC = "metric "
EXIT = "exit code"
"""Name that every demo, benchmark and use case has, even if it reports nothing."""
NAMED = 200
"""Maximum number of added tests that are listed; all are counted."""
Tests = Counter[str]
"""Node ids in the form of `normal_nodeid`; several tests may have the same.

Names with `CHECK` or `METRIC`, and `EXIT`, are what a command reports about itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestChanges:
    """The changes of a job's tests against those of the baseline."""

    __test__ = False

    runs: tuple[str, ...] = ()
    """Ids of the compared runs: those that the gate passed last, and the platform's last green run.
    """
    removed: tuple[str, ...] = ()
    """Node ids of baseline tests that are absent now."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """New names of tests by old ones, as confirmed by aliases."""
    added: int = 0
    """Number of tests that no run of the baseline has."""
    added_names: tuple[str, ...] = ()
    """The first `NAMED` names of added tests."""
    unknown: bool = False
    """Whether tests are counted without a name, so that they cannot be compared."""


@dataclass(frozen=True, slots=True)
class Names:
    """Node ids of a job's tests, by their form of `normal_nodeid`.

    ``t.py::a[1-2]`` and ``t.py::a[2-1]`` are compared as one name that occurs twice; only the
    node id shows which of them is gone.
    """

    then: Mapping[str, Set[str]] = field(default_factory=dict)
    """Node ids in the runs of the baseline."""
    now: Mapping[str, Set[str]] = field(default_factory=dict)

    def removed(self, tests: Tests) -> tuple[str, ...]:
        """Return the node ids of removed tests."""
        return _node_ids(tests, self.then, self.now)

    def added(self, tests: Tests) -> tuple[str, ...]:
        """Return the node ids of added tests."""
        return _node_ids(tests, self.now, self.then)


NO_NAMES = Names()
"""No node ids: tests are named by their form of `normal_nodeid`."""


def _node_ids(
    tests: Tests, had: Mapping[str, Set[str]], other: Mapping[str, Set[str]]
) -> tuple[str, ...]:
    """Return a node id from `had` for each test; node ids that `other` lacks come first."""
    found: list[str] = []
    for name, number in tests.items():
        own, theirs = had.get(name, frozenset()), other.get(name, frozenset())
        known = [*sorted(own - theirs), *sorted(own & theirs)]
        found += [*known, *[name] * number][:number]
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class BaselineTests:
    """The collected tests of a baseline, by job."""

    runs: tuple[str, ...]
    by_job: Mapping[str, Tests]


def is_reported(name: str) -> bool:
    """Whether a name is something that a command reports about itself, not a test."""
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
        job: The job's id.
        now: The collected tests; None if their names are unknown.
        baselines: The baselines; may be empty.
        renames: New names by old ones, as confirmed; a name may have changed more than once.
        left_out: Files and folders that were skipped as a whole or ignored; their own rule reports
            the tests in them.
        names: Node ids of the tests, of the baselines and now.
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
    """Return the absent tests, and the new names of those with a confirmed alias."""
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
