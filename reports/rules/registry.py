"""The rules of the comment report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.domain.run_record import Evidence
from reports.model.backend import BackendReport
from reports.model.comparison import CompareReport
from reports.model.money import CostReport
from reports.model.platform import PlatformReport
from reports.model.results import ResultsReport
from reports.model.summary import CommentReport, SummaryReport
from reports.model.values import ReportModel
from reports.rules.backend import backend_evidence, backend_figures, backend_rules
from reports.rules.blocks import RuleFinding
from reports.rules.comparison import compare_evidence, compare_figures, compare_rules
from reports.rules.ingested import origin_evidence, platform_origin_rule, summary_origin_rule
from reports.rules.money import cost_evidence, cost_figures, cost_rules
from reports.rules.results import results_figures, results_reported, results_rules


def comment_figures(report: CommentReport) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers that the comment's conclusion may use, by claim."""
    passed = sum(row.status.code == "passed" for row in report.cells)
    return {"run": (passed, len(report.cells))}


Figures = Mapping[str, tuple[int, ...]]

_RULES: Mapping[type, Callable[[Any], Iterator[RuleFinding]]] = {
    BackendReport: backend_rules,
    PlatformReport: platform_origin_rule,
    SummaryReport: summary_origin_rule,
    ResultsReport: results_rules,
    CostReport: cost_rules,
    CompareReport: compare_rules,
}
_FIGURES: Mapping[type, Callable[[Any], Figures]] = {
    BackendReport: backend_figures,
    ResultsReport: results_figures,
    CostReport: cost_figures,
    CommentReport: comment_figures,
    CompareReport: compare_figures,
}
_REPORTED: Mapping[type, Callable[[Any, Evidence], Iterator[RuleFinding]]] = {
    BackendReport: backend_evidence,
    PlatformReport: origin_evidence,
    SummaryReport: origin_evidence,
    ResultsReport: results_reported,
    CompareReport: compare_evidence,
    CostReport: cost_evidence,
}


def kind_rules(report: ReportModel) -> Iterator[RuleFinding]:
    """Return the rules between parts of a report, by kind."""
    rule = _RULES.get(type(report))
    if rule is not None:
        yield from rule(report)


def kind_figures(report: ReportModel) -> Figures:
    """Return the numbers that a conclusion may use, by claim."""
    known = _FIGURES.get(type(report))
    return known(report) if known is not None else {}


def kind_evidence(report: ReportModel, evidence: Evidence) -> Iterator[RuleFinding]:
    """Yield the contradictions between a report and its evidence."""
    rule = _REPORTED.get(type(report))
    if rule is not None:
        yield from rule(report, evidence)
