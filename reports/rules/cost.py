"""Rules about the cost report: every table comes to the same total."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from orchestrator.domain.run_record import Evidence
from reports.model.cost import CellCost, CostReport, PartRow
from reports.model.money import Costs
from reports.model.values import Absent
from reports.rules.blocks import Said, close, differs
from reports.rules.money import added_rule, sum_of, validated_rule

_NOTHING = Decimal(0)


def cost_rules(report: CostReport) -> Iterator[Said]:
    """The parts come to the total by cell, by state and by job."""
    known = [c for cell in report.cells if not isinstance(c := cell.money.costs, Absent)]
    yield from sum_of(report.costs, [costs.bill for costs in known], what="cells")
    if not isinstance(report.costs, Absent):
        yield from added_rule(report.costs, known)
        tallies = [cell.tally for cell in report.cells if not isinstance(cell.tally, Absent)]
        found = sum(tally.passed + tally.failed for tally in tallies)
        yield from differs("total", "validated tests", report.costs.validated, found)
    for cell in report.cells:
        yield from _cell(cell)
    whole = sum((costs.bill.total_usd for costs in known), _NOTHING)
    for rows, what in ((report.phases, "by state"), (report.jobs, "by job")):
        total = sum((row.total_usd for row in rows), _NOTHING)
        yield from differs("cost", f"the total {what}", total, whole)
        for row in rows:
            yield from _row(row, whole, len(report.cells))
        yield from _columns(rows, report, what)
    yield from _said(report)


def cost_figures(report: CostReport) -> Mapping[str, tuple[int, ...]]:
    """The figures that a conclusion may name."""
    charged = [cell for cell in report.cells if not isinstance(cell.money.costs, Absent)]
    refused = sum(cell.refused_hidden + len(cell.refused) for cell in report.cells)
    return {"charged": (len(charged), len(report.cells)), "refused": (refused,)}


def cost_evidence(report: CostReport, evidence: Evidence) -> Iterator[Said]:
    """How long jobs ran, and what was refused, is what is on record."""
    for cell in report.cells:
        told = evidence.record.cell(cell.cell)
        if told is None:
            yield "error", "reported", f"the run has no cell {cell.cell}"
            continue
        ran = [job.duration_s for job in told.jobs if job.duration_s is not None]
        busy = 0.0 if isinstance(cell.busy_s, Absent) else cell.busy_s
        if not close(busy, math.fsum(ran)):
            yield "error", "reported", f"{cell.cell}: jobs ran for {busy} s, recomputed {sum(ran)}"
        verdicts = [decision.verdict.value for decision in told.decisions]
        found = verdicts.count("refused") + verdicts.count("skipped")
        said = len(cell.refused) + cell.refused_hidden
        yield from differs("reported", f"{cell.cell}: refused places", said, found)


def _cell(cell: CellCost) -> Iterator[Said]:
    yield from validated_rule(cell.money.costs, cell.tally)
    held, busy = cell.money.seconds, cell.busy_s
    if isinstance(held, Absent) or isinstance(busy, Absent):
        yield from differs("idle", "idle of nothing", isinstance(cell.idle_s, Absent), True)
        return
    found = held - busy if held > busy else 0.0
    if isinstance(cell.idle_s, Absent) or not close(cell.idle_s, found):
        yield "error", "idle", f"{cell.cell}: idle_s is {cell.idle_s}, recomputed {found}"


def _row(row: PartRow, whole: Decimal, cells: int) -> Iterator[Said]:
    yield from differs("table", f"{row.name}: columns", len(row.usd), cells)
    parts = [usd for usd in row.usd if not isinstance(usd, Absent)]
    yield from differs("cost", f"{row.name}: total", row.total_usd, sum(parts, _NOTHING))
    if isinstance(row.percent, Absent) or not whole:
        both = isinstance(row.percent, Absent) and not whole
        yield from differs("cost", f"{row.name}: a share of nothing", both, True)
    elif not close(row.percent, float(row.total_usd) * 100 / float(whole)):
        yield "error", "cost", f"{row.name}: percent is {row.percent} of {whole}"


def _columns(rows: Sequence[PartRow], report: CostReport, what: str) -> Iterator[Said]:
    for at, cell in enumerate(report.cells):
        parts = [usd for row in rows if not isinstance(usd := row.usd[at], Absent)]
        costs = cell.money.costs
        found = costs.bill.total_usd if isinstance(costs, Costs) else _NOTHING
        yield from differs("cost", f"{cell.cell} {what}", sum(parts, _NOTHING), found)


def _said(report: CostReport) -> Iterator[Said]:
    """What was refused has a sentence, and the sentence about the total quotes it."""
    refused = sum(cell.refused_hidden + len(cell.refused) for cell in report.cells)
    named = any(claim.rule == "refused" for claim in report.conclusion)
    yield from differs("claim", "a sentence about refused places", named, refused > 0)
    for claim in report.conclusion:
        if claim.rule == "total" and not isinstance(report.costs, Absent):
            total = f"${report.costs.bill.total_usd:,.4f}"
            if f"cost {total}" not in claim.text:
                yield "error", "claim", f"the total is {total}, the claim says: {claim.text}"
            each = report.costs.usd_per_validated
            if not isinstance(each, Absent) and f"${each:,.6f} for" not in claim.text:
                yield "error", "claim", f"a test cost {each}, the claim says: {claim.text}"
