"""Rules about costs: parts add up to their total, and billed seconds times price give a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from orchestrator.domain.run_record import Evidence
from reports.model.money import (
    CostBreakdown,
    CostColumn,
    CostReport,
    Costs,
    Money,
    MoneyRow,
    PartRow,
)
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport
from reports.model.values import Absent, Tally
from reports.rules.blocks import RuleFinding, close, differs

_ROUNDED = Decimal("0.00006")
"""Half of a hundredth of a cent, and a little."""
_MILLIONTH = Decimal("0.000001")
_NOTHING = Decimal(0)


def bill_rule(part: CostBreakdown) -> Iterator[RuleFinding]:
    """Check that the parts of a bill add up and none is negative."""
    parts = (part.machine_usd, part.disk_usd, part.address_usd)
    yield from differs("cost", "the bill's total", part.total_usd, sum(parts, _NOTHING))
    if min(parts) < 0:
        yield "error", "cost", "a part of the bill is negative"


def row_rule(part: MoneyRow) -> Iterator[RuleFinding]:
    """Check that billed seconds times the price are the machine's part."""
    price, bill, billed_s = part.price_usd_per_hour, part.bill, part.billed_s
    if isinstance(price, Absent) or isinstance(bill, Absent) or isinstance(billed_s, Absent):
        every = (price, bill, billed_s)
        both = all(isinstance(value, Absent) for value in every)
        yield from differs("cost", "a bill without a price", both, True)
        return
    if isinstance(part.seconds, Absent):
        yield "error", "cost", "a cost without seconds"
        return
    if billed_s and billed_s < math.ceil(round(part.seconds, 6)):
        yield "error", "cost", f"{billed_s} s are billed of {part.seconds} s"
    found = Decimal(billed_s) * price / 3600
    if abs(bill.machine_usd - found) > _ROUNDED:
        yield "error", "cost", f"seconds x price is {bill.machine_usd}, recomputed {found:.6f}"


def costs_rule(part: Costs) -> Iterator[RuleFinding]:
    """Check that the totals by state and by job agree, and the cost of a test."""
    total = part.bill.total_usd
    phases = sum((share.usd for share in part.phases), _NOTHING)
    yield from differs("cost", "the total by state", phases, total)
    jobs = sum((share.usd for share in part.jobs), part.overhead_usd)
    yield from differs("cost", "the total by job", jobs, total)
    if not part.validated or isinstance(part.usd_per_validated, Absent):
        both = not part.validated and isinstance(part.usd_per_validated, Absent)
        yield from differs("cost", "a cost per test without a test", both, True)
        return
    found = (total / part.validated).quantize(_MILLIONTH)
    yield from differs("cost", "the cost per test", part.usd_per_validated, found)


def money_rule(part: Money) -> Iterator[RuleFinding]:
    """Check that the totals are the sums of the machines."""
    held = [row.seconds for row in part.rows if not isinstance(row.seconds, Absent)]
    if isinstance(part.seconds, Absent):
        yield from differs("total", "machines behind absent seconds", 0, len(held))
    elif not close(part.seconds, math.fsum(held)):
        yield "error", "total", f"seconds are {part.seconds}, recomputed {math.fsum(held)}"
    bills = [row.bill for row in part.rows if not isinstance(row.bill, Absent)]
    yield from sum_of(part.costs, bills, what="machines")


def sum_of(
    costs: Costs | Absent, bills: list[CostBreakdown], *, what: str
) -> Iterator[RuleFinding]:
    """Return the sum of bills; absent without any."""
    if isinstance(costs, Absent):
        yield from differs("total", f"{what} behind an absent cost", 0, len(bills))
        return
    for name in ("machine_usd", "disk_usd", "address_usd", "total_usd"):
        found = sum((getattr(bill, name) for bill in bills), _NOTHING)
        yield from differs("total", name, getattr(costs.bill, name), found)


def platform_money_rule(report: PlatformReport) -> Iterator[RuleFinding]:
    """Check that the number of validated tests is that of the suites."""
    yield from validated_rule(report.money.costs, report.suites.total)


def summary_money_rule(report: SummaryReport) -> Iterator[RuleFinding]:
    """Check that the run's sums are the sums of its cells."""
    known = [c for row in report.rows if not isinstance(c := row.money.costs, Absent)]
    for row in report.rows:
        yield from validated_rule(row.money.costs, row.tally)
    yield from sum_of(report.costs, [costs.bill for costs in known], what="cells")
    if isinstance(report.costs, Absent):
        return
    total = report.costs
    tallies = [row.tally for row in report.rows if not isinstance(row.tally, Absent)]
    found = sum(tally.passed + tally.failed for tally in tallies)
    yield from differs("total", "validated tests", total.validated, found)
    yield from added_rule(total, known)


def added_rule(total: Costs, known: Sequence[Costs]) -> Iterator[RuleFinding]:
    """Check that the shares of several cells are the sums of the cells' shares."""
    overhead = sum((costs.overhead_usd for costs in known), _NOTHING)
    yield from differs("total", "overhead_usd", total.overhead_usd, overhead)
    for name in ("phases", "jobs"):
        mine = {share.name: share.usd for share in getattr(total, name)}
        yield from differs("total", name, mine, _added(known, name))


def _added(known: Iterable[Costs], name: str) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for costs in known:
        for share in getattr(costs, name):
            total[share.name] = total.get(share.name, _NOTHING) + share.usd
    return total


def validated_rule(costs: Costs | Absent, tally: Tally | Absent) -> Iterator[RuleFinding]:
    """Check that validated tests are those that passed or failed."""
    if isinstance(costs, Absent):
        return
    found = 0 if isinstance(tally, Absent) else tally.passed + tally.failed
    yield from differs("total", "validated tests", costs.validated, found)


MONEY_RULES: dict[type, Callable[[Any], Iterator[RuleFinding]]] = {
    CostBreakdown: bill_rule,
    MoneyRow: row_rule,
    Costs: costs_rule,
    Money: money_rule,
}
"""By the type of the part."""


def cost_rules(report: CostReport) -> Iterator[RuleFinding]:
    """Check that the costs by cell, by state and by job add up to the total."""
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
    yield from _findings(report)


def cost_figures(report: CostReport) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers that a conclusion may use."""
    charged = [cell for cell in report.cells if not isinstance(cell.money.costs, Absent)]
    refused = sum(cell.refused_hidden + len(cell.refused) for cell in report.cells)
    return {"charged": (len(charged), len(report.cells)), "refused": (refused,)}


def cost_evidence(report: CostReport, evidence: Evidence) -> Iterator[RuleFinding]:
    """Check durations of jobs and refusals of machines against the evidence."""
    for cell in report.cells:
        told = evidence.record.cell(cell.cell)
        if told is None:
            yield "error", "reported", f"the run has no cell {cell.cell}"
            continue
        ran = [job.duration_s for job in told.jobs if job.duration_s is not None]
        busy = 0.0 if isinstance(cell.busy_s, Absent) else cell.busy_s
        if not close(busy, math.fsum(ran)):
            yield "error", "reported", f"{cell.cell}: jobs ran for {busy} s, recomputed {sum(ran)}"
        results = [decision.result.value for decision in told.decisions]
        found = results.count("refused") + results.count("skipped")
        said = len(cell.refused) + cell.refused_hidden
        yield from differs("reported", f"{cell.cell}: refused places", said, found)


def _cell(cell: CostColumn) -> Iterator[RuleFinding]:
    yield from validated_rule(cell.money.costs, cell.tally)
    held, busy = cell.money.seconds, cell.busy_s
    if isinstance(held, Absent) or isinstance(busy, Absent):
        yield from differs("idle", "idle of nothing", isinstance(cell.idle_s, Absent), True)
        return
    found = held - busy if held > busy else 0.0
    if isinstance(cell.idle_s, Absent) or not close(cell.idle_s, found):
        yield "error", "idle", f"{cell.cell}: idle_s is {cell.idle_s}, recomputed {found}"


def _row(row: PartRow, whole: Decimal, cells: int) -> Iterator[RuleFinding]:
    yield from differs("table", f"{row.name}: columns", len(row.usd), cells)
    parts = [usd for usd in row.usd if not isinstance(usd, Absent)]
    yield from differs("cost", f"{row.name}: total", row.total_usd, sum(parts, _NOTHING))
    if isinstance(row.percent, Absent) or not whole:
        both = isinstance(row.percent, Absent) and not whole
        yield from differs("cost", f"{row.name}: a share of nothing", both, True)
    elif not close(row.percent, float(row.total_usd) * 100 / float(whole)):
        yield "error", "cost", f"{row.name}: percent is {row.percent} of {whole}"


def _columns(rows: Sequence[PartRow], report: CostReport, what: str) -> Iterator[RuleFinding]:
    for at, cell in enumerate(report.cells):
        parts = [usd for row in rows if not isinstance(usd := row.usd[at], Absent)]
        costs = cell.money.costs
        found = costs.bill.total_usd if isinstance(costs, Costs) else _NOTHING
        yield from differs("cost", f"{cell.cell} {what}", sum(parts, _NOTHING), found)


def _findings(report: CostReport) -> Iterator[RuleFinding]:
    """Check that each refusal has a sentence, which the total's sentence quotes."""
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
