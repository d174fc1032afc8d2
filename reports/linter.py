"""The linter: recomputes every derived figure of a report before it may be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass

from orchestrator.domain.cell import CellState
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport, SummaryRow
from reports.model.values import Contradiction, ReportModel
from reports.rules.authored import claims_rule
from reports.rules.backend import BACKEND_PARTS
from reports.rules.blocks import RULES, RuleFinding, differs
from reports.rules.ingested import INGESTED_PARTS, recorded_rule
from reports.rules.metrics import METRIC_RULES, paired_rule, reported_rule
from reports.rules.money import MONEY_RULES
from reports.rules.registry import kind_evidence, kind_rules
from reports.rules.whole_report import platform_rules, summary_rules

EVERY_RULE = {**RULES, **BACKEND_PARTS, **INGESTED_PARTS, **METRIC_RULES, **MONEY_RULES}
"""By the type of the part."""


def lint(report: ReportModel) -> tuple[Contradiction, ...]:
    """Return every inconsistency among a report's own figures."""
    found = list(_parts(report, report.kind))
    found += _named(claims_rule(report), "conclusion")
    if isinstance(report, PlatformReport):
        found += _named(platform_rules(report), report.cell)
    if isinstance(report, SummaryReport):
        found += _named(summary_rules(report), "run")
    found += _named(kind_rules(report), report.kind)
    return tuple(found)


def lint_evidence(report: ReportModel, evidence: Evidence) -> tuple[Contradiction, ...]:
    """Compare the counted tests of a report with its roll-ups.

    A cell that is still written to may be read between the two: then this is a warning.
    """
    found: list[Contradiction] = []
    for cell in evidence.record.cells:
        if not isinstance(report, PlatformReport) or cell.id == report.cell:
            found += _recount(cell, evidence.tests.get(cell.id, ()))
            found += _named(_measured(report, cell), cell.id)
    if isinstance(report, SummaryReport):
        names = {(t.job, t.nodeid) for tests in evidence.tests.values() for t in tests}
        said = differs("distinct", "distinct tests", report.distinct_tests, len(names))
        found += _named(said, "run")
    found += _named(kind_evidence(report, evidence), report.kind)
    found += _named(recorded_rule(report, evidence), report.kind)
    return tuple(found)


def errors(findings: Iterable[Contradiction]) -> tuple[Contradiction, ...]:
    """Return findings that prevent publishing."""
    return tuple(finding for finding in findings if finding.level == "error")


def _named(statements: Iterable[RuleFinding], where: str) -> Iterator[Contradiction]:
    return (Contradiction(level, rule, where, message) for level, rule, message in statements)


def _parts(part: object, path: str) -> Iterator[Contradiction]:
    rule = EVERY_RULE.get(type(part))
    if rule is not None:
        yield from _named(rule(part), path)
    if isinstance(part, tuple):
        for index, item in enumerate(part):
            yield from _parts(item, f"{path}[{index}]")
    elif is_dataclass(part):
        for field in fields(part):
            yield from _parts(getattr(part, field.name), f"{path}.{field.name}")


def _measured(report: ReportModel, cell: CellRecord) -> Iterator[RuleFinding]:
    """Compare the figures of a cell with what its jobs reported."""
    parts: Sequence[PlatformReport | SummaryRow] = ()
    if isinstance(report, PlatformReport):
        parts = (report,)
    elif isinstance(report, SummaryReport):
        parts = [row for row in report.rows if row.cell == cell.id]
    for part in parts:
        yield from reported_rule(part.metrics, cell)
        yield from paired_rule(part.paired, cell)


def _recount(cell: CellRecord, tests: Iterable[TestFact]) -> Iterator[Contradiction]:
    tallies: dict[str, Counter[TestOutcome]] = {}
    for test in tests:
        known = test.final or test.outcome is TestOutcome.NOT_RUN
        outcome = test.outcome if known else TestOutcome.MISSING
        tallies.setdefault(test.job, Counter())[outcome] += 1
    level = "error" if cell.state is CellState.DONE else "warning"
    for job in cell.jobs:
        counted = Counts.from_tally(tallies.pop(job.id, Counter())) + job.unnamed
        if _without_end(counted) != _without_end(job.counts):
            yield Contradiction(level, "recount", f"{cell.id}.{job.id}", _difference(counted, job))
    for name in tallies:
        yield Contradiction(
            level, "recount", cell.id, f"tests of a job that the cell has not: {name}"
        )


def _without_end(counts: Counts) -> dict[str, int]:
    """Count missing and not-run tests as one, until the job is finished."""
    figures = counts.as_dict()
    return figures | {"missing": counts.missing + counts.not_run, "not_run": 0}


def _difference(counted: Counts, job: JobRecord) -> str:
    said, found = job.counts.as_dict(), counted.as_dict()
    names = [name for name in said if said[name] != found[name]]
    return "; ".join(f"{name} {said[name]}, counted {found[name]}" for name in names)
