"""Reports, exports and the linter of reports; the wiring imports this module at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.application.end_run import ReportRefusedError
from orchestrator.assets import asset_dir
from orchestrator.domain.run_record import Evidence
from reports import registry
from reports.document_lint.linter import lint_documents
from reports.exports import registry as exports
from reports.rules.authored import doubts_of

__all__ = ["doubts_of", "draw", "export", "export_media", "kinds", "lint_documents", "render"]


def kinds() -> tuple[str, ...]:
    """Return the kinds of reports."""
    return tuple(registry.KINDS)


def export_media() -> Mapping[str, str]:
    """Return the media types of exports, by format."""
    return {name: form.media for name, form in exports.FORMATS.items()}


def render(
    kind: str, evidence: Evidence, cell: str | None, form: str, *, alone: bool = False
) -> str:
    """Render a report. Raises ReportRefusedError."""
    templates = asset_dir("templates") / "reports"
    try:
        return registry.render(
            kind, evidence, cell=cell, format=form, alone=alone, templates=templates
        )
    except registry.ReportError as error:
        raise ReportRefusedError(str(error)) from error


def draw(kind: str, evidence: Evidence, cell: str | None) -> Mapping[str, str]:
    """Draw the plots of a report: SVG by path. Raises ReportRefusedError."""
    try:
        return {plot.path: plot.svg for plot in registry.draw(kind, evidence, cell=cell)}
    except registry.ReportError as error:
        raise ReportRefusedError(str(error)) from error


def export(name: str, evidence: Evidence, cell: str | None) -> Iterator[str]:
    """Yield the pieces of an export. Raises ReportRefusedError at once."""
    try:
        return exports.export(name, evidence, cell=cell)
    except exports.ExportError as error:
        raise ReportRefusedError(str(error)) from error
