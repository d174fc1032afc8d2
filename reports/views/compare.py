"""The compare report: a run against its base, with changed tests, metrics and environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.cell import build_difference
from orchestrator.domain.compare_tests import Difference, beginning_of, difference
from orchestrator.domain.environment_fingerprint import environment_diff, traits
from orchestrator.domain.event_facts import MetricFact, TestFact
from orchestrator.domain.grouping import grouped
from orchestrator.domain.node_ids import compare_names, job_family
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord, RunRecord
from reports.format import plural, version
from reports.grouping import is_ratio
from reports.model.comparison import (
    CATEGORIES,
    Change,
    ChangeGroup,
    Changes,
    CompareReport,
    EnvironmentChange,
    JobChange,
    MetricDelta,
    PairedCell,
    Side,
    UnmatchedCell,
)
from reports.model.metrics import Params
from reports.model.values import Absent, Claim, Status
from reports.views.benchmarks import baseline_of, metric_figure, params_of, relative
from reports.views.cell_timeline import footer_of, run_digest
from reports.views.machine import cell_status, hardware_of, job_status, run_status
from reports.views.money import money_of, total_costs
from reports.views.origin import run_date
from reports.views.results import column_heading
from reports.views.suites import settled, suites_of
from reports.views.summary import unfinished_run

METRICS_SHOWN = 80
"""Metrics that are listed of one cell; those that got worse by most come first."""

MetricKey = tuple[str, str, str, str, str, Params]
"""Job, name, unit, direction, baseline, parameters."""


@dataclass(frozen=True, slots=True)
class Deltas:
    """The metrics of two cells."""

    shown: tuple[MetricDelta, ...]
    alike: int
    hidden: int
    came: int
    went: int


def deltas_of(old: CellRecord, new: CellRecord, names: Mapping[str, str]) -> Deltas:
    """Compare the metrics of both cells; `names` maps a job to its name in the base."""
    before, after = _facts(old, {}), _facts(new, names)
    titles = {names.get(job.id, job.id): job.title or job.id for job in new.jobs}
    both = [_delta(key, before[key], after[key], titles) for key in after if key in before]
    differing = sorted((delta for delta in both if not _is_alike(delta)), key=_badness)
    return Deltas(
        shown=tuple(differing[:METRICS_SHOWN]),
        alike=len(both) - len(differing),
        hidden=len(differing[METRICS_SHOWN:]),
        came=len(after) - len(both),
        went=len(before) - len(both),
    )


def _facts(cell: CellRecord, names: Mapping[str, str]) -> dict[MetricKey, MetricFact]:
    """Return metrics by key; a repeated metric has its last report."""
    return {
        _key(fact, names.get(job.id, job.id)): fact for job in cell.jobs for fact in job.metrics
    }


def _key(fact: MetricFact, job: str) -> MetricKey:
    against = (baseline_of(fact) or "") if is_ratio(fact.unit) else ""
    return job, fact.name, fact.unit, fact.direction, against, params_of(fact.params)


def _delta(
    key: MetricKey, old: MetricFact, new: MetricFact, titles: Mapping[str, str]
) -> MetricDelta:
    job, name, unit, direction, against, params = key
    base, head = metric_figure(old), metric_figure(new)
    return MetricDelta(
        job=job,
        title=titles.get(job, job),
        metric=name,
        unit=unit,
        direction=direction,
        against=against,
        params=params,
        base=base,
        head=head,
        percent=_percent(base.median, head.median),
        relative=_relative(base.median, head.median, direction),
        overlaps=base.overlaps(head),
    )


def _percent(base: float | Absent, head: float | Absent) -> float | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two is not a finite number")
    return 100 * (head / base - 1) if base else Absent("division by zero")


def _relative(base: float | Absent, head: float | Absent, direction: str) -> float | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two is not a finite number")
    return relative(head, base, direction)


def _is_alike(delta: MetricDelta) -> bool:
    """Whether spreads overlap; single samples are alike only if they are equal."""
    unknown = isinstance(delta.base.median, Absent) or isinstance(delta.head.median, Absent)
    return delta.overlaps and not unknown


def _badness(delta: MetricDelta) -> float:
    """Return the rounded sort key, so that equal changes keep their reported order."""
    return 1.0 if isinstance(delta.relative, Absent) else round(delta.relative, 3)


SHOWN = 60
"""Tests that are listed of one category on one cell."""
MAYBE_SHOWN = 40
"""Names that may be one test."""

_NOT_IN_BASE = Absent("not in the base")
_NOT_IN_HEAD = Absent("not in the head")

Key = tuple[str, str]
"""Job, name."""


@dataclass(frozen=True, slots=True)
class SideOutcome:
    """Outcome of one test in one of the compared runs."""

    outcome: str
    message: str = ""
    hides: bool = False
    """It is a module or a folder that could not be collected."""


Results = Mapping[Key, SideOutcome]


def category(before: str | None, after: str | None, *, is_hidden: bool = False) -> str:
    """Return one of `CATEGORIES`; empty without a change. None: the run lacks the test."""
    sides = (TestOutcome[word.upper()] if word is not None else None for word in (before, after))
    found = difference(*sides, is_hidden=is_hidden)
    return "" if found is Difference.SAME else found.value


def same_jobs(base: Sequence[JobRecord], head: Sequence[JobRecord]) -> Mapping[str, str]:
    """Return the jobs of the base by jobs of the head: of the same id, or the only alike one."""
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
    """Return tests by job and name; `names` maps a job to its name in the base."""
    return {
        (names.get(t.job, t.job), t.nodeid): SideOutcome(
            settled(t).word, t.message or t.reason, hides=t.reason == "collection"
        )
        for t in tests
    }


def checks_of(cell: CellRecord, names: Mapping[str, str]) -> Results:
    """Return checks by job and name."""
    return {
        (names.get(job.id, job.id), check.name): SideOutcome(check.outcome, check.reason)
        for job in cell.jobs
        for check in job.checks
    }


def under_new_names(base: Results, head: Results, renamed: Mapping[str, str]) -> Results:
    """Return the base's tests under their new names, where the head has no such test."""
    return {_new_name(key, base, head, renamed): told for key, told in base.items()}


def _new_name(key: Key, base: Results, head: Results, renamed: Mapping[str, str]) -> Key:
    if key in head or key[1] not in renamed:
        return key
    now = (key[0], renamed[key[1]])
    return now if now in head and now not in base else key


def in_other_jobs(base: Results, head: Results) -> Results:
    """Return the base's tests under the head's jobs: a node id that one job of each side has.

    The jobs of evidence that was ingested have other names than those of a payload.
    """
    went, came = _by_nodeid(base, head), _by_nodeid(head, base)
    moved = {
        keys[0]: came[nodeid][0]
        for nodeid, keys in went.items()
        if len(keys) == len(came.get(nodeid, ())) == 1
    }
    return {moved.get(key, key): told for key, told in base.items()}


def _by_nodeid(mine: Results, other: Results) -> Mapping[str, list[Key]]:
    """Return the tests that only one side has."""
    return grouped((key[1], key) for key in mine if key not in other)


def changes_of(
    base: Results,
    head: Results,
    *,
    confirmed: int = 0,
    base_counts: bool = False,
    head_counts: bool = False,
) -> Changes:
    """Sort every name of both sides into its category.

    `base_counts`, `head_counts`: the side has tests that its source only counts.
    """
    same: Counter[str] = Counter()
    found: dict[str, list[Change]] = {name: [] for name in CATEGORIES}
    broken = [(key[0], beginning_of(key[1])) for key, told in head.items() if told.hides]
    for key in dict.fromkeys((*base, *head)):
        before, after = base.get(key), head.get(key)
        if after is not None:
            hidden = base_counts
        else:
            of_broken = (key[0] == job and key[1].startswith(begin) for job, begin in broken)
            hidden = head_counts or any(of_broken)
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


def _word(side_outcome: SideOutcome | None) -> str | None:
    return side_outcome.outcome if side_outcome is not None else None


def _change(key: Key, before: SideOutcome | None, after: SideOutcome | None) -> Change:
    return Change(
        job=key[0],
        name=key[1],
        before=before.outcome if before else _NOT_IN_BASE,
        after=after.outcome if after else _NOT_IN_HEAD,
        message=(after or before or SideOutcome("")).message,
    )


def _group(name: str, changes: list[Change]) -> ChangeGroup:
    shown = tuple(changes[:SHOWN])
    return ChangeGroup(name, len(changes), shown, len(changes) - len(shown))


def _maybe(went: Sequence[Key], came: Sequence[Key]) -> tuple[tuple[str, str, str], ...]:
    """Return tests that were probably moved or renamed; nothing is merged."""
    found = compare_names(
        [name for _, name in went], [name for _, name in came], lambda _one, _other: 0.0
    )
    said = [(one.old, one.new, one.change.value) for one in found.suggestions]
    return tuple(said[:MAYBE_SHOWN])


Match = tuple[CellRecord, CellRecord, str]


def matches(base: Sequence[CellRecord], head: Sequence[CellRecord]) -> tuple[Match, ...]:
    """Return pairs (base, head, how): by cell id, else by unambiguous platform.

    Two runs of one cell each are always set against each other. The pairs come in the order of
    the head's cells.
    """
    found: list[Match] = []
    for how, key in (("cell id", _id), ("platform", _machine), ("platform", _accelerator)):
        theirs = _only([c for c in base if all(c is not old for old, _, _ in found)], key)
        ours = _only([c for c in head if all(c is not new for _, new, _ in found)], key)
        found += [(theirs[name], cell, how) for name, cell in ours.items() if name in theirs]
    if not found and len(base) == len(head) == 1:
        return ((base[0], head[0], "only cell"),)
    order = [cell.id for cell in head]
    return tuple(sorted(found, key=lambda match: order.index(match[1].id)))


def _only(
    cells: Sequence[CellRecord], key: Callable[[CellRecord], Hashable]
) -> dict[Hashable, CellRecord]:
    """Return cells by unique key; cells with the key None are left out."""
    keys = [key(cell) for cell in cells]
    pairs = zip(keys, cells, strict=True)
    return {name: cell for name, cell in pairs if name is not None and keys.count(name) == 1}


def _id(cell: CellRecord) -> Hashable:
    return cell.id


def _machine(cell: CellRecord) -> Hashable:
    platform = cell.platform
    return platform.provider, platform.instance_type, platform.accelerator_type, _accelerator(cell)


def _accelerator(cell: CellRecord) -> Hashable:
    platform = cell.platform
    if platform.accelerator is not None:
        return platform.accelerator.vendor, platform.accelerator.name
    return platform.accelerator_type or None


TEMPLATE = "compare 2"
ENVIRONMENT_SHOWN = 40
"""Things that differ between two environments."""

_NOT_THERE = Absent("not in this run")


def compare_view(evidence: Evidence, _cell_id: str = "") -> CompareReport:
    """Return the changes since `evidence.base`. Raises LookupError without a base."""
    base, head = evidence.base, evidence
    if base is None:
        raise LookupError("a comparison needs a base")
    found = matches(base.record.cells, head.record.cells)
    pairs = tuple(_pair(old, new, how, base, head) for old, new, how in found)
    sides = _side(base.record), _side(head.record)
    matched = ({old.id for old, _, _ in found}, {new.id for _, new, _ in found})
    deltas = [delta for pair in pairs for delta in pair.metrics]
    run = head.record.run
    return CompareReport(
        kind="compare",
        title=_title(sides),
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(base.record) or unfinished_run(head.record),
        conclusion=_conclusion(pairs),
        footer=footer_of(head.record, run_digest(head.record, base=base.record), TEMPLATE),
        base=sides[0],
        head=sides[1],
        subject_difference=build_difference(base.record.subject, head.record.subject),
        pairs=pairs,
        base_only=_unmatched(base.record, matched[0]),
        head_only=_unmatched(head.record, matched[1]),
        totals=_totals(pairs),
        unchanged=sum(pair.tests.unchanged for pair in pairs),
        better=sum(delta.verdict == "better" for delta in deltas),
        worse=sum(delta.verdict == "worse" for delta in deltas),
        usd_difference=_difference(sides[0].cost_usd, sides[1].cost_usd),
    )


def _totals(pairs: Sequence[PairedCell]) -> tuple[tuple[str, int], ...]:
    """Return the total of each category; ``hidden`` only if it is not zero."""
    every = ((name, sum(pair.tests.of(name).count for pair in pairs)) for name in CATEGORIES)
    return tuple((name, count) for name, count in every if name != "hidden" or count)


def _title(sides: tuple[Side, Side]) -> str:
    base, head = sides
    if base.subject == head.subject:
        return f"{head.subject} {version(base.version)} → {version(head.version)} — Comparison"
    old, new = (f"{side.subject} {version(side.version)}" for side in sides)
    return f"{old} → {new} — Comparison"


def _side(record: RunRecord) -> Side:
    costs = total_costs((money_of(cell).costs for cell in record.cells), validated=0)
    return Side(
        run_id=record.run.id,
        subject=record.run.subject_name,
        version=record.run.subject_version,
        wheel_sha256=record.subject.wheel or Absent("no wheel"),
        payload_sha256=record.run.payload_digest or Absent("no payload"),
        date=run_date(record),
        status=run_status(record),
        cells=len(record.cells),
        cost_usd=costs if isinstance(costs, Absent) else costs.bill.total_usd,
    )


def _unmatched(record: RunRecord, matched: set[str]) -> tuple[UnmatchedCell, ...]:
    return tuple(
        UnmatchedCell(
            cell.id, column_heading(cell, record), cell_status(cell), cell.counts.collected
        )
        for cell in record.cells
        if cell.id not in matched
    )


def _environments(
    old: CellRecord, new: CellRecord, subject: str
) -> tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]:
    """Return the sides without an environment, and else the differences of both."""
    silent = tuple(w for w, c in (("base", old), ("head", new)) if not traits(c.probed))
    return silent, () if silent else environment_diff(old.probed, new.probed, subject=subject)


def _pair(old: CellRecord, new: CellRecord, how: str, base: Evidence, head: Evidence) -> PairedCell:
    names = same_jobs(old.jobs, new.jobs)
    stacks = [hardware_of(cell, subject="").stack for cell in (old, new)]
    silent, environment = _environments(old, new, head.record.subject.name)
    deltas = deltas_of(old, new, names)
    money = money_of(old).cost_usd, money_of(new).cost_usd
    jobs, jobs_same = _jobs(old, new, names)
    unnamed = [sum(job.unnamed.collected for job in cell.jobs) for cell in (old, new)]
    tests = base.tests.get(old.id, ()), head.tests.get(new.id, ())
    return PairedCell(
        base_cell=old.id,
        head_cell=new.id,
        heading=column_heading(new, head.record),
        matched=how,
        base_status=cell_status(old),
        head_status=cell_status(new),
        base_tally=suites_of(old).total,
        head_tally=suites_of(new).total,
        environment=tuple(EnvironmentChange(*row) for row in environment[:ENVIRONMENT_SHOWN]),
        environment_hidden=len(environment[ENVIRONMENT_SHOWN:]),
        silent=silent,
        same_stack=stacks[0] == stacks[1],
        base_stack=" ".join(stacks[0]),
        head_stack=" ".join(stacks[1]),
        jobs=jobs,
        jobs_same=jobs_same,
        tests=_tests(by_name(tests[0], {}), by_name(tests[1], names), head.renamed, unnamed),
        unnamed_base=unnamed[0],
        unnamed_head=unnamed[1],
        checks=changes_of(checks_of(old, {}), checks_of(new, names)),
        metrics=deltas.shown,
        metrics_alike=deltas.alike,
        metrics_hidden=deltas.hidden,
        metrics_came=deltas.came,
        metrics_went=deltas.went,
        base_usd=money[0],
        head_usd=money[1],
        usd_difference=_difference(*money),
    )


def _tests(
    base: Results, head: Results, renamed: Mapping[str, str], unnamed: Sequence[int]
) -> Changes:
    now = under_new_names(base, head, renamed)
    confirmed = len(now.keys() - base.keys())
    counts = [bool(number) for number in unnamed]
    return changes_of(
        in_other_jobs(now, head),
        head,
        confirmed=confirmed,
        base_counts=counts[0],
        head_counts=counts[1],
    )


def _difference(base: Decimal | Absent, head: Decimal | Absent) -> Decimal | Absent:
    if isinstance(base, Absent) or isinstance(head, Absent):
        return Absent("one of the two has no price")
    return head - base


def _jobs(
    old: CellRecord, new: CellRecord, names: Mapping[str, str]
) -> tuple[tuple[JobChange, ...], int]:
    theirs = {job.id: job for job in old.jobs}
    taken = set(names.values())
    changes = [
        JobChange(
            job=job.id,
            title=job.title or job.id,
            before=_status(theirs.get(names.get(job.id, "")), old),
            after=job_status(job, new),
        )
        for job in new.jobs
    ]
    changes += [
        JobChange(job.id, job.title or job.id, job_status(job, old), _NOT_THERE)
        for job in old.jobs
        if job.id not in taken
    ]
    differing = tuple(change for change in changes if not _is_same(change))
    return differing, len(changes) - len(differing)


def _status(job: JobRecord | None, cell: CellRecord) -> Status | Absent:
    return job_status(job, cell) if job is not None else _NOT_THERE


def _is_same(change: JobChange) -> bool:
    before, after = change.before, change.after
    if not isinstance(before, Status) or not isinstance(after, Status):
        return False
    return (before.code, before.degraded is None) == (after.code, after.degraded is None)


def _conclusion(pairs: Sequence[PairedCell]) -> tuple[Claim, ...]:
    words = {
        "new_failure": "new failure",
        "still_failing": "test",
        "fixed": "fixed test",
        "newly_skipped": "newly skipped test",
        "missing": "newly missing test",
    }
    claims = []
    for name, word in words.items() if pairs else ():
        found = sum(pair.tests.of(name).count for pair in pairs)
        rest = " failed in both runs" if name == "still_failing" else ""
        claims.append(Claim(f"tests.{name}", (found,), f"{plural(found, word)}{rest}."))
    for verdict in ("worse", "better"):
        found = sum(delta.verdict == verdict for pair in pairs for delta in pair.metrics)
        if found:
            text = f"{plural(found, 'metric')} {verdict}."
            claims.append(Claim(f"metrics.{verdict}", (found,), text))
    return tuple(claims)
