"""The CSV table of results: a line for each test."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from orchestrator.domain.run_record import CellRecord, Evidence
from reports.exports.entries import ExportEntry, ExportGroup, clean, groups_of

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


def _row(evidence: Evidence, group: ExportGroup, entry: ExportEntry) -> Sequence[str]:
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
        cell.provenance,
        "true" if cell.simulated else "false",
    )


def _line(values: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([_safe(clean(value)) for value in values])
    return out.getvalue()


def _safe(value: str) -> str:
    """Return a text that spreadsheets do not interpret as a formula."""
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULAS) else value
