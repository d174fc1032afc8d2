"""Registry of the export formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.document_problems import nearest
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.exports.csv_table import table
from reports.exports.ctrf import ctrf
from reports.exports.junit import junit
from reports.exports.provenance import statements


class ExportError(Exception):
    """Nothing was exported; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """An export format with its renderer."""

    name: str
    media: str
    write: Callable[[Evidence, Sequence[CellRecord]], Iterator[str]]


FORMATS: Mapping[str, ExportFormat] = {
    form.name: form
    for form in (
        ExportFormat("junit", "application/xml", junit),
        ExportFormat("ctrf", "application/json", ctrf),
        ExportFormat("csv", "text/csv; charset=utf-8", table),
        ExportFormat("intoto", "application/x-ndjson", statements),
    )
}


def export(name: str, evidence: Evidence, *, cell: str | None = None) -> Iterator[str]:
    """Export everything, or one cell, in pieces. Raises ExportError at once."""
    form = FORMATS.get(name)
    if form is None:
        raise ExportError(f"there is no export {name!r}{nearest(name, FORMATS)}")
    cells = evidence.record.cells
    chosen = tuple(found for found in cells if cell is None or found.id == cell)
    if cell is not None and not chosen:
        names = [found.id for found in cells]
        raise ExportError(f"the run has no cell {cell!r}{nearest(cell, names)}")
    return form.write(evidence, chosen)
