"""The kinds of reports, and how one is rendered as Markdown, HTML or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.document_problems import nearest
from orchestrator.domain.run_record import Evidence
from reports.html import render_html
from reports.linter import errors, lint, lint_evidence
from reports.markdown import plain, render_markdown
from reports.model.blocks import Plot
from reports.model.values import Absent, Contradiction, ReportModel
from reports.plots.selection import plots_of
from reports.views.backend import backend_view
from reports.views.compare import compare_view
from reports.views.cost import cost_view
from reports.views.platform import platform_view
from reports.views.results import results_view
from reports.views.summary import comment_view, summary_view


def render_json(model: ReportModel) -> str:
    """Render the whole model as JSON; missing values are ``{"not_measured": reason}``."""
    return json.dumps(_plain(model), ensure_ascii=True, indent=2, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Absent):
        return {"not_measured": value.reason}
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return {"not_measured": "not a finite number"}
    return value


FORMATS = ("md", "html", "json")


class ReportError(Exception):
    """A report was not made; the message says why, for a person."""


class UnknownReportError(ReportError):
    """No such kind, cell or format."""


class ContradictionError(ReportError):
    """The linter found figures that contradict each other or the evidence."""

    def __init__(self, kind: str, findings: tuple[Contradiction, ...]) -> None:
        self.findings = findings
        listed = "\n".join(f"  {f.where}: {f.rule}: {f.message}" for f in findings)
        super().__init__(f"the {kind} report contradicts itself or its evidence:\n{listed}")


@dataclass(frozen=True, slots=True)
class ReportKind:
    """One kind of report."""

    name: str
    view: Callable[[Evidence, str], ReportModel]
    """Evidence, and a cell's id (empty if the report is of the whole run)."""
    template: str
    per_cell: bool
    needs_base: bool = False
    """Whether it sets the run against another one; no run's folder has it."""


KINDS: Mapping[str, ReportKind] = {
    kind.name: kind
    for kind in (
        ReportKind("summary", summary_view, "summary.md.j2", per_cell=False),
        ReportKind("platform", platform_view, "platform.md.j2", per_cell=True),
        ReportKind("backend", backend_view, "backend.md.j2", per_cell=False),
        ReportKind("results", results_view, "results.md.j2", per_cell=False),
        ReportKind("cost", cost_view, "cost.md.j2", per_cell=False),
        ReportKind("comment", comment_view, "comment.md.j2", per_cell=False),
        ReportKind("compare", compare_view, "compare.md.j2", per_cell=False, needs_base=True),
    )
}


def render(
    kind: str,
    evidence: Evidence,
    *,
    cell: str | None = None,
    format: str = "md",  # noqa: A002 - the word of the command line and of the route
    alone: bool = False,
    templates: Path,
) -> str:
    """Render a report.

    Args:
        kind: A key of `KINDS`.
        evidence: The run and its tests.
        cell: A cell's id, where the kind is about one cell; the only one by default.
        format: ``md``, ``html`` or ``json``.
        alone: Whether no file lies beside it: it links none, neither plots nor other reports.
        templates: The folder of the report templates.

    Raises:
        UnknownReportError: The kind, the cell or the format does not exist.
        ReportRefusedError: The linter found an error.
    """
    if format not in FORMATS:
        raise UnknownReportError(f"there is no format {format!r}{nearest(format, FORMATS)}")
    model = model_of(kind, evidence, cell=cell)
    if format == "json":
        return render_json(model)
    alone = alone or KINDS[kind].needs_base
    plots = plots_of(model) if format == "html" or not alone else ()
    text = render_markdown(
        model, KINDS[kind].template, templates=templates, plots=plots, form=format, alone=alone
    )
    if format == "md":
        return text
    return render_html(text, title=plain(model.title), templates=templates, plots=plots)


def draw(kind: str, evidence: Evidence, *, cell: str | None = None) -> tuple[Plot, ...]:
    """Return the plots that the Markdown of a report links; raises as `render` does."""
    return plots_of(model_of(kind, evidence, cell=cell))


def model_of(kind: str, evidence: Evidence, *, cell: str | None = None) -> ReportModel:
    """Return a linted model with the linter's warnings; raises as `render` does."""
    chosen = KINDS.get(kind)
    if chosen is None:
        raise UnknownReportError(f"there is no report {kind!r}{nearest(kind, KINDS)}")
    if chosen.needs_base and evidence.base is None:
        raise UnknownReportError(f"a {kind} report is of two runs: seatrial compare BASE HEAD")
    about = _cell(chosen, evidence, cell)
    model = chosen.view(evidence, about)
    findings = (*lint(model), *lint_evidence(model, evidence))
    if errors(findings):
        raise ContradictionError(kind, errors(findings))
    return replace(model, remarks=findings)


def _cell(kind: ReportKind, evidence: Evidence, cell: str | None) -> str:
    names = [c.id for c in evidence.record.cells]
    if not kind.per_cell:
        if cell is not None:
            raise UnknownReportError(f"the {kind.name} report is of the whole run: name no cell")
        return ""
    if cell is None and len(names) == 1:
        return names[0]
    if cell is None:
        raise UnknownReportError(f"name one of the run's cells: {', '.join(names)}")
    if cell not in names:
        raise UnknownReportError(f"the run has no cell {cell!r}{nearest(cell, names)}")
    return cell
