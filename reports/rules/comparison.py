"""Rules about comparisons: each figure is counted again from the evidence of both runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.model.comparison import (
    Changes,
    CompareReport,
    MetricDelta,
    PairedCell,
    Side,
    UnmatchedCell,
)
from reports.model.metrics import MetricFigure
from reports.model.values import Absent, Tally
from reports.rules.blocks import RuleFinding, close, differs


def compare_rules(report: CompareReport) -> Iterator[RuleFinding]:
    """Yield the contradictions between the parts of a comparison."""
    for pair in report.pairs:
        yield from _results_of_pair(pair)
    for name, said in report.totals:
        found = sum(
            group.count for p in report.pairs for group in p.tests.groups if group.category == name
        )
        yield from differs("total", f"{name} of all cells", said, found)
    same = sum(count for pair in report.pairs for _, count in pair.tests.same)
    yield from differs("total", "unchanged tests", report.unchanged, same)
    verdicts = Counter(_verdict(delta) for pair in report.pairs for delta in pair.metrics)
    yield from differs("comparison", "better metrics", report.better, verdicts["better"])
    yield from differs("comparison", "worse metrics", report.worse, verdicts["worse"])
    yield from _money(report.base.cost_usd, report.head.cost_usd, report.usd_difference)
    for side, alone, which in (
        (report.base, report.base_only, "base"),
        (report.head, report.head_only, "head"),
    ):
        found = len(report.pairs) + len(alone)
        yield from differs("total", f"cells of the {which}", side.cells, found)


def compare_figures(report: CompareReport) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers that a conclusion may use."""
    tests = {
        f"tests.{name}": (sum(_count(pair.tests, name) for pair in report.pairs),)
        for name, _ in report.totals
    }
    return tests | {"metrics.worse": (report.worse,), "metrics.better": (report.better,)}


def _count(changes: Changes, name: str) -> int:
    return next((group.count for group in changes.groups if group.category == name), 0)


def _results_of_pair(pair: PairedCell) -> Iterator[RuleFinding]:
    where = pair.head_cell
    for what, changes in (("tests", pair.tests), ("checks", pair.checks)):
        yield from _changes(f"{where}: {what}", changes)
    for tally, named, unnamed, which in (
        (pair.base_tally, pair.tests.base, pair.unnamed_base, "base"),
        (pair.head_tally, pair.tests.head, pair.unnamed_head, "head"),
    ):
        if isinstance(tally, Tally):
            said = named + unnamed
            yield from differs("recount", f"{where}: tests of the {which}", said, tally.collected)
    same = pair.base_stack == pair.head_stack
    yield from differs("stack", f"{where}: same stack", pair.same_stack, same)
    for delta in pair.metrics:
        yield from _delta(delta)
    yield from _money(pair.base_usd, pair.head_usd, pair.usd_difference)


def _changes(where: str, changes: Changes) -> Iterator[RuleFinding]:
    for group in changes.groups:
        listed = len(group.shown) + group.hidden
        yield from differs("listed", f"{where}: {group.category}", group.count, listed)
        if group.hidden < 0:
            yield "error", "listed", f"{where}: more are listed than counted"
    everything = sum(group.count for group in changes.groups) + sum(n for _, n in changes.same)
    union = changes.base + changes.came
    yield from differs("total", f"{where}: names of both sides", everything, union)
    yield from differs("total", f"{where}: came and went", changes.head, union - changes.went)
    least, most = changes.of("gone").count, _went(changes)
    if not least <= changes.went <= most:
        yield "error", "total", f"{where}: {changes.went} are gone, of {least} to {most}"


def _went(changes: Changes) -> int:
    """Return tests that the head run lacks."""
    return sum(group.count for group in changes.groups if group.category in ("gone", "hidden"))


def _delta(delta: MetricDelta) -> Iterator[RuleFinding]:
    name = f"{delta.job}: {delta.metric}"
    base, head = delta.base.median, delta.head.median
    if isinstance(base, Absent) or isinstance(head, Absent) or not base:
        both = isinstance(delta.percent, Absent)
        yield from differs("comparison", f"{name}: a share of nothing", both, True)
        return
    if isinstance(delta.percent, Absent) or not close(delta.percent, (head - base) * 100 / base):
        yield "error", "comparison", f"{name}: percent is {delta.percent}"
    if not isinstance(delta.relative, Absent):
        found = head / base if delta.direction == "higher" else base / head
        if not close(delta.relative, found):
            yield "error", "comparison", f"{name} is {delta.relative}x, recomputed {found}x"
    touches = _low(delta.base) <= _high(delta.head) and _low(delta.head) <= _high(delta.base)
    yield from differs("comparison", f"{name}: overlap", delta.overlaps, touches)


def _verdict(delta: MetricDelta) -> str:
    apart = max(_low(delta.base), _low(delta.head)) > min(_high(delta.base), _high(delta.head))
    if min(len(delta.base.samples), len(delta.head.samples)) < 2 or not apart:
        return ""
    if isinstance(delta.relative, Absent):
        return ""
    return "better" if delta.relative > 1 else "worse"


def _low(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.low, Absent) else figure.low


def _high(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.high, Absent) else figure.high


def _money(
    base: Decimal | Absent, head: Decimal | Absent, difference: Decimal | Absent
) -> Iterator[RuleFinding]:
    if isinstance(base, Absent) or isinstance(head, Absent):
        both = isinstance(difference, Absent)
        yield from differs("cost", "a difference to an unknown cost", both, True)
        return
    yield from differs("cost", "the difference", difference, head - base)


_FAILING = ("failed", "error")
_LOST = ("missing", "not_run")

Names = set[tuple[str, str]]
"""Job, name."""


def compare_evidence(report: CompareReport, evidence: Evidence) -> Iterator[RuleFinding]:
    """Check the groups against the tests of both runs."""
    if evidence.base is None:
        yield "error", "comparison", "there is no base to compare with"
        return
    yield from _side(report.base, report.base_only, evidence.base)
    yield from _side(report.head, report.head_only, evidence)
    for pair in report.pairs:
        yield from _pair(pair, evidence.base, evidence)
        old = _by_outcome(evidence.base.tests.get(pair.base_cell, ()))
        new = _by_outcome(evidence.tests.get(pair.head_cell, ()))
        yield from differs("recount", f"{pair.head_cell}: tests", pair.tests.head, len(_all(new)))
        yield from differs("recount", f"{pair.head_cell}: base", pair.tests.base, len(_all(old)))
        moved = _moved(old, new, evidence.renamed)
        old = {word: {moved.get(name, name) for name in names} for word, names in old.items()}
        yield from differs("recount", "confirmed names", pair.tests.confirmed, len(moved))
        other = _in_other_jobs(_all(old) - _all(new), _all(new) - _all(old))
        old = {word: {other.get(name, name) for name in names} for word, names in old.items()}
        went, came = _all(old) - _all(new), _all(new) - _all(old)
        hidden = _hidden(evidence.tests.get(pair.head_cell, ()), went)
        hidden |= went if pair.unnamed_head else set()
        hidden |= came - _in(new, (*_FAILING, *_LOST)) if pair.unnamed_base else set()
        said = {"hidden": 0, **{group.category: group.count for group in pair.tests.groups}}
        if {t.job for t in evidence.base.tests.get(pair.base_cell, ())} >= {
            t.job for t in evidence.tests.get(pair.head_cell, ())
        }:
            for name, found in _expected(old, new, hidden).items():
                yield from differs("recount", f"{pair.head_cell}: {name}", said[name], found)


def _side(side: Side, alone: Iterable[UnmatchedCell], evidence: Evidence) -> Iterator[RuleFinding]:
    yield from differs("comparison", "the run", side.run_id, evidence.record.run.id)
    wheel = "" if isinstance(side.wheel_sha256, Absent) else side.wheel_sha256
    yield from differs("comparison", "the subject's wheel", wheel, evidence.record.subject.wheel)
    yield from differs("comparison", "its cells", side.cells, len(evidence.record.cells))
    for lonely in alone:
        cell = evidence.record.cell(lonely.cell)
        found = sum(job.counts.collected for job in cell.jobs) if cell is not None else -1
        yield from differs("recount", f"{lonely.cell}: tests", lonely.tests, found)


def _pair(pair: PairedCell, base: Evidence, head: Evidence) -> Iterator[RuleFinding]:
    old, new = base.record.cell(pair.base_cell), head.record.cell(pair.head_cell)
    if old is None or new is None:
        yield "error", "comparison", f"no cell {pair.base_cell}, or {pair.head_cell}"
        return
    for cell, unnamed, which in (
        (old, pair.unnamed_base, "base"),
        (new, pair.unnamed_head, "head"),
    ):
        found = sum(job.unnamed.collected for job in cell.jobs)
        yield from differs("recount", f"{cell.id}: unnamed in the {which}", unnamed, found)
    before, after = _reported(old), _reported(new)
    both = len(pair.metrics) + pair.metrics_alike + pair.metrics_hidden
    yield from differs("recount", "metrics of the base", both + pair.metrics_went, len(before))
    yield from differs("recount", "metrics of the head", both + pair.metrics_came, len(after))
    for delta in pair.metrics:
        for figure, known in ((delta.base, before), (delta.head, after)):
            if (delta.metric, delta.unit, repr(figure.samples)) not in known.values():
                yield "error", "reported", f"{delta.metric} was not reported so"


def _reported(cell: CellRecord) -> dict[str, tuple[str, str, str]]:
    """Return the last report of each metric, by job, name, unit and parameters."""
    found = {}
    for job in cell.jobs:
        for fact in job.metrics:
            params = json.dumps(fact.params, sort_keys=True, default=str)
            key = "\x1f".join((job.id, fact.name, fact.unit, fact.direction, params))
            found[key] = (fact.name, fact.unit, repr(fact.samples))
    return found


def _by_outcome(tests: Iterable[TestFact]) -> dict[str, Names]:
    found: dict[str, Names] = {}
    for test in tests:
        over = test.final or test.outcome is TestOutcome.NOT_RUN
        word = test.outcome.name.lower() if over else "missing"
        found.setdefault(word, set()).add((test.job, test.nodeid))
    return found


def _moved(
    old: Mapping[str, Names], new: Mapping[str, Names], renamed: Mapping[str, str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return tests of the base run that were only renamed."""
    gone, come = _all(old) - _all(new), _all(new) - _all(old)
    pairs = {name: (name[0], renamed.get(name[1], name[1])) for name in gone}
    return {name: now for name, now in pairs.items() if now in come and now != name}


def _in_other_jobs(gone: Names, come: Names) -> dict[tuple[str, str], tuple[str, str]]:
    """Return tests of the base run that one other job of the head run has."""
    many = Counter(nodeid for _, nodeid in gone), Counter(nodeid for _, nodeid in come)
    names = {nodeid: (job, nodeid) for job, nodeid in come if many[1][nodeid] == 1}
    return {key: names[key[1]] for key in gone if many[0][key[1]] == 1 and key[1] in names}


def _all(names_by_cell: Mapping[str, Names]) -> Names:
    return set().union(*names_by_cell.values())


def _hidden(tests: Iterable[TestFact], went: Names) -> Names:
    """Return missing tests whose module or folder could not be collected."""
    found: Names = set()
    for test in tests:
        if test.reason == "collection":
            parts = tuple(test.nodeid + mark for mark in ("::", "/"))
            every = test.nodeid in ("", ".")
            mine = {name for job, name in went if job == test.job}
            found |= {(test.job, name) for name in mine if every or name.startswith(parts)}
    return found


def _expected(old: Mapping[str, Names], new: Mapping[str, Names], hidden: Names) -> dict[str, int]:
    """Return the expected number of tests in each category, computed by sets of names."""
    failed, fails = _in(old, _FAILING), _in(new, _FAILING)
    lost, loses = _in(old, _LOST), _in(new, _LOST)
    skipped, skips = old.get("skipped", set()), new.get("skipped", set())
    base, head = _all(old), _all(new)
    sound = _in(new, ("passed", "xfailed", "xpassed"))
    fixed = sound & failed
    stays = {name for word in new for name in new[word] & old.get(word, set())}
    return {
        "new_failure": len(fails - failed),
        "still_failing": len(fails & failed),
        "fixed": len(fixed),
        "newly_skipped": len((skips & base) - skipped),
        "missing": len(loses - lost),
        "changed": len((sound & base) - fixed - stays),
        "new": len(head - base - fails - loses - hidden),
        "gone": len(base - head - hidden),
        "hidden": len(hidden),
    }


def _in(names_by_cell: Mapping[str, Names], words: Iterable[str]) -> Names:
    return set().union(*(names_by_cell.get(word, set()) for word in words))
