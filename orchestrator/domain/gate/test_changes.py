"""Changes of a job's tests, by name, against the baseline runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """Node ids of any baseline that are absent now."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Tests with a confirmed alias, by older name."""
    added: int = 0
    """Number of tests that no baseline has."""
    added_names: tuple[str, ...] = ()
    """The first `NAMED` of these."""
    unknown: bool = False
    """Whether counted tests have no name, so that they cannot be compared."""


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
) -> TestChanges:
    """Compare the tests of a job with each baseline.

    Args:
        job: Its id.
        now: The collected tests; None if their names are unknown.
        baselines: Any number.
        renames: Confirmed ones, by the older name; a name may have changed more than once.
        left_out: Files and folders that were skipped as a whole or not looked into: what was lost
            there is told of them, and is not told again.
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
    fresh = [name for name in _fresh(now, then) if name not in renamed.values()] if runs else []
    return TestChanges(
        runs=runs,
        removed=tuple(sorted(name for name in removed.elements() if not name.startswith(places))),
        renamed=dict(sorted(renamed.items())),
        added=len(fresh),
        added_names=tuple(fresh[:NAMED]),
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


def _fresh(now: Tests, then: Sequence[Tests]) -> list[str]:
    known = Counter[str]()
    for tests in then:
        known |= tests
    return sorted((now - known).elements())
