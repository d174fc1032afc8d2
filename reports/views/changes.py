"""What became of each test, or each check, from one run to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.difference import beginning_of
from orchestrator.domain.facts import TestFact
from orchestrator.domain.identity import compare_names, job_family
from orchestrator.domain.run_record import CellRecord, JobRecord
from reports.model.compare import CATEGORIES, Change, ChangeGroup, Changes
from reports.model.values import Absent
from reports.views.suites import settled

SHOWN = 60
"""Tests that are listed of one category on one cell."""
MAYBE_SHOWN = 40
"""Names that may be one test."""

_BAD = frozenset({"failed", "error"})
_NEVER = frozenset({"missing", "not_run"})
_GOOD = frozenset({"passed", "xfailed", "xpassed"})
_NOT_IN_BASE = Absent("not in the base")
_NOT_IN_HEAD = Absent("not in the head")

Key = tuple[str, str]
"""Job, name."""


@dataclass(frozen=True, slots=True)
class Told:
    """How one test went, in one run."""

    outcome: str
    message: str = ""
    hides: bool = False
    """It is a module or a folder that could not be collected."""


Results = Mapping[Key, Told]


def category(before: str | None, after: str | None, *, is_hidden: bool = False) -> str:
    """One of `CATEGORIES`; empty where nothing changed. None: the run has no such test."""
    if after is None:
        return "hidden" if is_hidden else "gone"
    if after in _BAD:
        return "still_failing" if before in _BAD else "new_failure"
    if after in _NEVER:
        return "" if before in _NEVER else "missing"
    if before is None:
        return "new"
    return _of_sound(before, after)


def _of_sound(before: str, after: str) -> str:
    """Of a test that neither failed nor got lost."""
    if before == after:
        return ""
    if after == "skipped":
        return "newly_skipped"
    return "fixed" if before in _BAD and after in _GOOD else "changed"


def same_jobs(base: Sequence[JobRecord], head: Sequence[JobRecord]) -> Mapping[str, str]:
    """By a job of the head, the one of the base that it is: its id, else the only one like it."""
    known = {job.id for job in base}
    found = {job.id: job.id for job in head if job.id in known}
    theirs = [job for job in base if job.id not in found]
    ours = [job for job in head if job.id not in found]
    for job in ours:
        alike = [other for other in theirs if _alike(job, other)]
        rivals = [other for other in ours if _alike(job, other)]
        if len(alike) == 1 and len(rivals) == 1:
            found[job.id] = alike[0].id
    return found


def _alike(job: JobRecord, other: JobRecord) -> bool:
    return job.kind == other.kind and job_family(job.id) == job_family(other.id)


def by_name(tests: Iterable[TestFact], names: Mapping[str, str]) -> Results:
    """Tests by job and name; `names` says what a job is called in the base."""
    return {
        (names.get(t.job, t.job), t.nodeid): Told(
            settled(t).word, t.message or t.reason, hides=t.reason == "collection"
        )
        for t in tests
    }


def checks_of(cell: CellRecord, names: Mapping[str, str]) -> Results:
    """Checks by job and name."""
    return {
        (names.get(job.id, job.id), check.name): Told(check.outcome, check.reason)
        for job in cell.jobs
        for check in job.checks
    }


def under_new_names(base: Results, head: Results, renamed: Mapping[str, str]) -> Results:
    """The base with the names that its tests have now, where the head has no other of that name."""
    return {_new_name(key, base, head, renamed): told for key, told in base.items()}


def _new_name(key: Key, base: Results, head: Results, renamed: Mapping[str, str]) -> Key:
    if key in head or key[1] not in renamed:
        return key
    now = (key[0], renamed[key[1]])
    return now if now in head and now not in base else key


def changes_of(base: Results, head: Results, *, confirmed: int = 0) -> Changes:
    """Sort every name of both sides into its category."""
    same: Counter[str] = Counter()
    found: dict[str, list[Change]] = {name: [] for name in CATEGORIES}
    broken = [(key[0], beginning_of(key[1])) for key, told in head.items() if told.hides]
    for key in dict.fromkeys((*base, *head)):
        before, after = base.get(key), head.get(key)
        hidden = any(key[0] == job and key[1].startswith(begin) for job, begin in broken)
        kind = category(_word(before), _word(after), is_hidden=hidden)
        if kind:
            found[kind].append(_change(key, before, after))
        elif after is not None:
            same[after.outcome] += 1
    came = [key for key in head if key not in base]
    went = [key for key in base if key not in head]
    return Changes(
        base=len(base),
        head=len(head),
        same=tuple(sorted(same.items())),
        groups=tuple(
            _group(name, found[name]) for name in CATEGORIES if name != "hidden" or found[name]
        ),
        came=len(came),
        went=len(went),
        confirmed=confirmed,
        maybe=_maybe(went, came),
    )


def _word(told: Told | None) -> str | None:
    return told.outcome if told is not None else None


def _change(key: Key, before: Told | None, after: Told | None) -> Change:
    return Change(
        job=key[0],
        name=key[1],
        before=before.outcome if before else _NOT_IN_BASE,
        after=after.outcome if after else _NOT_IN_HEAD,
        message=(after or before or Told("")).message,
    )


def _group(name: str, changes: list[Change]) -> ChangeGroup:
    shown = tuple(changes[:SHOWN])
    return ChangeGroup(name, len(changes), shown, len(changes) - len(shown))


def _maybe(went: Sequence[Key], came: Sequence[Key]) -> tuple[tuple[str, str, str], ...]:
    """Tests that were moved, or whose parameters are in another order: nothing is merged."""
    found = compare_names(
        [name for _, name in went], [name for _, name in came], lambda _one, _other: 0.0
    )
    said = [(one.old, one.new, one.change.value) for one in found.suggestions]
    return tuple(said[:MAYBE_SHOWN])
