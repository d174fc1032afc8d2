"""Registry of the export formats, with CSV and Markdown tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.document_problems import nearest
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.exports.ctrf import ctrf
from reports.exports.entries import Entry, Group, clean, groups_of
from reports.exports.intoto import statements
from reports.exports.junit import junit
from reports.exports.provenance import provenance_of

HEADER = (
    "run", "cell", "platform", "environment", "job", "kind", "name", "outcome", "duration_s",
    "reason", "message", "tries", "degraded", "provenance", "simulated",
)  # fmt: skip
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")


def table(evidence: Evidence, cells: Sequence[CellRecord]) -> Iterator[str]:
    """Yield the lines of a table, its column names first."""
    yield _line(HEADER)
    for group in groups_of(evidence, cells):
        for entry in group.entries:
            yield _line(_row(evidence, group, entry))


def _row(evidence: Evidence, group: Group, entry: Entry) -> Sequence[str]:
    cell, job = group.cell, group.job
    return (
        evidence.record.run.id,
        cell.id,
        cell.platform.id,
        cell.environment,
        job.id if job else "",
        entry.kind.value,
        entry.nodeid,
        entry.word,
        "" if entry.duration_s is None else f"{entry.duration_s:.6f}",
        entry.reason,
        entry.message,
        str(1 + len(entry.earlier)),
        (job.degraded if job else "") or "",
        provenance_of(cell).value,
        "true" if cell.simulated else "false",
    )


def _line(values: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([_safe(clean(value)) for value in values])
    return out.getvalue()


def _safe(value: str) -> str:
    """Return a text that spreadsheets do not interpret as a formula."""
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULAS) else value


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
