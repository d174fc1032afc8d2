"""Rules about conclusions: every figure in a sentence is one of the report's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orchestrator.domain.vocabulary import term
from reports.model.blocks import CommandTable
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport
from reports.model.values import Absent, Claim, ReportModel, Status, Tally
from reports.rules.blocks import Said, differs
from reports.rules.kinds import kind_figures

Figures = tuple[int, ...]

ABSOLUTE = re.compile(r"\b(all|every|fully|100\s?%|perfect|production.ready)\b", re.IGNORECASE)
_NUMERAL = re.compile(r"(?<![\w.-])\d[\d,]*")


def claims_rule(report: ReportModel) -> Iterator[Said]:
    """Look each claim's figures up in the report."""
    known, status = _known(report)
    for claim in report.conclusion:
        if claim.rule in ("outcome", "run"):
            yield from _outcome(claim, status)
        elif ABSOLUTE.search(claim.text):
            yield "error", "claim", f"a word without a rule: {claim.text}"
        if claim.rule in known:
            what = f"figures of {claim.rule}"
            yield from differs("claim", what, claim.figures, known[claim.rule])
            yield from _numerals(claim)
        elif claim.figures:
            yield "error", "claim", f"nothing in the report backs the figures of {claim.rule}"


def _numerals(claim: Claim) -> Iterator[Said]:
    said = tuple(int(found.replace(",", "")) for found in _NUMERAL.findall(claim.text))
    if claim.figures:
        yield from differs("claim", f"numbers in {claim.text!r}", said, claim.figures)


def _outcome(claim: Claim, status: Status) -> Iterator[Said]:
    word = term(status.code).word.upper()
    if not re.search(rf"Outcome(?: of the run)?: \S+ {word}\b", claim.text):
        yield "error", "claim", f"the outcome is {word}, the claim says: {claim.text}"
    if status.code != "passed" and "because every job" in claim.text:
        yield "error", "claim", "the rule of a pass is quoted for what did not pass"


def _known(report: ReportModel) -> tuple[Mapping[str, Figures], Status]:
    if isinstance(report, PlatformReport):
        return dict(_of_platform(report)), report.status
    if isinstance(report, SummaryReport):
        return dict(_of_summary(report)), report.status
    return kind_figures(report), getattr(report, "status", Status("running"))


def _of_platform(report: PlatformReport) -> Iterator[tuple[str, Figures]]:
    yield "tests", _tests(report.suites.total)
    tables = (report.demos, report.use_cases, report.benchmarks)
    for table in tables:
        yield f"jobs.{table.kind}", _jobs(table)
    degraded = [r for t in tables for r in t.rows if r.status.degraded is not None]
    suites = [row for row in report.suites.rows if row.status.degraded is not None]
    yield "degraded", (len(degraded) + len(suites),)


def _of_summary(report: SummaryReport) -> Iterator[tuple[str, Figures]]:
    yield "total", _tests(report.total.tally)
    yield "accelerators", _tests(report.accelerators.tally)
    yield "degraded", (sum(len(row.degraded) for row in report.rows),)
    yield "run", (report.passed_cells.part, report.passed_cells.whole)


def _tests(tally: Tally | Absent) -> Figures:
    if isinstance(tally, Absent):
        return ()
    judged = tally.passed + tally.failed + tally.error
    seldom = [n for n in (tally.xfailed, tally.xpassed, tally.not_run) if n]
    return (tally.passed, judged, tally.skipped, tally.missing, *seldom)


def _jobs(table: CommandTable) -> Figures:
    passed = len([row for row in table.rows if row.status.code == "passed"])
    known = [row.checks for row in table.rows if not isinstance(row.checks, Absent)]
    held = sum(checks.passed for checks in known)
    judged = sum(checks.passed + checks.failed for checks in known)
    return (passed, len(table.rows), held, judged) if known else (passed, len(table.rows))
