"""The cost report: a whole run's money, from the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from orchestrator.domain.cell import PlacementResult
from orchestrator.domain.run_record import CellRecord, Evidence, RunRecord
from reports.format import each, part, plural, version
from reports.model.money import (
    CostColumn,
    CostReport,
    Costs,
    Money,
    PartRow,
)
from reports.model.values import Absent, Claim
from reports.views.cell_timeline import footer_of, run_digest
from reports.views.machine import cell_status, run_status
from reports.views.money import money_of, total_costs
from reports.views.origin import SIMULATED, run_date
from reports.views.results import column_heading
from reports.views.suites import suites_of
from reports.views.summary import unfinished_run

TEMPLATE = "cost 2"

REFUSED_SHOWN = 40

"""Lines of a cell's decision log."""

NONE_OF_THE_JOBS = ""

"""The name of costs outside of all jobs; no job has it."""

_NOT_SPENT = Absent("nothing spent there")


def cost_view(evidence: Evidence, _cell_id: str = "") -> CostReport:
    """Return the cost report of a run."""
    record = evidence.record
    run, counts = record.run, record.counts
    cells = tuple(_cell(cell, record) for cell in record.cells)
    known = [cell.money.costs for cell in cells]
    costs = total_costs(known, validated=counts.passed + counts.failed)
    simulated = f" ({SIMULATED})" if cells and all(cell.simulated for cell in cells) else ""
    return CostReport(
        kind="cost",
        title=f"{run.subject_name} {version(run.subject_version)} — Cost of the Run{simulated}",
        subject=run.subject_name,
        version=run.subject_version,
        unfinished=unfinished_run(record),
        conclusion=_conclusion(cells, costs),
        footer=footer_of(record, run_digest(record), TEMPLATE),
        date=run_date(record),
        status=run_status(record),
        cells=cells,
        costs=costs,
        phases=_parts([_phase_parts(one) for one in known], costs),
        jobs=_parts([_jobs(one) for one in known], costs),
    )


def _cell(cell: CellRecord, record: RunRecord) -> CostColumn:
    money = money_of(cell)
    ran = [job.duration_s for job in cell.jobs if job.duration_s is not None]
    busy = sum(ran) if ran else Absent("no job reported its duration")
    refused = [
        d for d in cell.decisions if d.result in (PlacementResult.REFUSED, PlacementResult.SKIPPED)
    ]
    shown = refused[:REFUSED_SHOWN]
    return CostColumn(
        cell=cell.id,
        heading=column_heading(cell, record),
        status=cell_status(cell),
        simulated=cell.simulated,
        tally=suites_of(cell).total,
        money=money,
        busy_s=busy,
        idle_s=_idle(money, busy),
        refused=tuple(shown),
        refused_hidden=len(refused) - len(shown),
    )


def _idle(money: Money, busy: float | Absent) -> float | Absent:
    if isinstance(money.seconds, Absent):
        return money.seconds
    return busy if isinstance(busy, Absent) else max(0.0, money.seconds - busy)


def _phase_parts(costs: Costs | Absent) -> Mapping[str, Decimal]:
    return {} if isinstance(costs, Absent) else {s.name: s.usd for s in costs.phases}


def _jobs(costs: Costs | Absent) -> Mapping[str, Decimal]:
    if isinstance(costs, Absent):
        return {}
    return {s.name: s.usd for s in costs.jobs} | {NONE_OF_THE_JOBS: costs.overhead_usd}


def _parts(cells: Sequence[Mapping[str, Decimal]], costs: Costs | Absent) -> tuple[PartRow, ...]:
    names = dict.fromkeys(name for shares in cells for name in shares)
    ordered = [name for name in names if name != NONE_OF_THE_JOBS]
    ordered += [NONE_OF_THE_JOBS] if NONE_OF_THE_JOBS in names else []
    return tuple(_part(name, cells, costs) for name in ordered)


def _part(name: str, cells: Sequence[Mapping[str, Decimal]], costs: Costs | Absent) -> PartRow:
    usd = tuple(shares.get(name, _NOT_SPENT) for shares in cells)
    total = sum((one for one in usd if not isinstance(one, Absent)), Decimal(0))
    whole = Decimal(0) if isinstance(costs, Absent) else costs.bill.total_usd
    percent = float(100 * total / whole) if whole else Absent("nothing was charged")
    return PartRow(name, usd, total, percent)


def _conclusion(cells: Sequence[CostColumn], costs: Costs | Absent) -> tuple[Claim, ...]:
    charged = sum(not isinstance(cell.money.costs, Absent) for cell in cells)
    said = f"{plural(charged, 'platform')} of {len(cells)} had a machine with a price."
    claims = [Claim("charged", (charged, len(cells)), said)]
    refused = sum(len(cell.refused) + cell.refused_hidden for cell in cells)
    if refused:
        text = f"{plural(refused, 'place')} gave no machine, or were not asked."
        claims.append(Claim("refused", (refused,), text))
    if not isinstance(costs, Absent):
        each_usd = costs.usd_per_validated
        test = "" if isinstance(each_usd, Absent) else f", {each(each_usd)} for a validated test"
        text = f"The run cost {part(costs.bill.total_usd)}{test}."
        claims.append(Claim("total", (), text))
    return tuple(claims)
