"""What the evidence of two runs says against a comparison of them: everything counted again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from orchestrator.domain.facts import TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.model.compare import CellPair, CompareReport, Lonely, Side
from reports.rules.blocks import Said, differs

_FAILING = ("failed", "error")
_LOST = ("missing", "not_run")

Names = set[tuple[str, str]]
"""Job, name."""


def compare_evidence(report: CompareReport, evidence: Evidence) -> Iterator[Said]:
    """The groups again, from the tests of both runs as sets of names."""
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
        hidden = _hidden(evidence.tests.get(pair.head_cell, ()), _all(old) - _all(new))
        said = {"hidden": 0, **{group.category: group.count for group in pair.tests.groups}}
        if {t.job for t in evidence.base.tests.get(pair.base_cell, ())} >= {
            t.job for t in evidence.tests.get(pair.head_cell, ())
        }:
            for name, found in _expected(old, new, hidden).items():
                yield from differs("recount", f"{pair.head_cell}: {name}", said[name], found)


def _side(side: Side, alone: Iterable[Lonely], told: Evidence) -> Iterator[Said]:
    yield from differs("comparison", "the run", side.run_id, told.record.run.id)
    yield from differs("comparison", "its cells", side.cells, len(told.record.cells))
    for lonely in alone:
        cell = told.record.cell(lonely.cell)
        found = sum(job.counts.collected for job in cell.jobs) if cell is not None else -1
        yield from differs("recount", f"{lonely.cell}: tests", lonely.tests, found)


def _pair(pair: CellPair, base: Evidence, head: Evidence) -> Iterator[Said]:
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
    """By job, name, unit and everything else of a metric, what was reported last."""
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
    """Tests of the base that only have another name now."""
    gone, come = _all(old) - _all(new), _all(new) - _all(old)
    pairs = {name: (name[0], renamed.get(name[1], name[1])) for name in gone}
    return {name: now for name, now in pairs.items() if now in come and now != name}


def _all(found: Mapping[str, Names]) -> Names:
    return set().union(*found.values())


def _hidden(tests: Iterable[TestFact], went: Names) -> Names:
    """Tests that went with a module or a folder that could not be collected."""
    found: Names = set()
    for test in tests:
        if test.reason == "collection":
            parts = tuple(test.nodeid + mark for mark in ("::", "/"))
            every = test.nodeid in ("", ".")
            mine = {name for job, name in went if job == test.job}
            found |= {(test.job, name) for name in mine if every or name.startswith(parts)}
    return found


def _expected(old: Mapping[str, Names], new: Mapping[str, Names], hidden: Names) -> dict[str, int]:
    """By sets: who failed, who is lost, who was skipped."""
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
        "new": len(head - base - fails - loses),
        "gone": len(base - head - hidden),
        "hidden": len(hidden),
    }


def _in(found: Mapping[str, Names], words: Iterable[str]) -> Names:
    return set().union(*(found.get(word, set()) for word in words))
