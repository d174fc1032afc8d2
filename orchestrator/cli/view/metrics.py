"""Metrics of a run's jobs: the median of each one's samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.run_record import RunResponse
from orchestrator.domain.units import number, plural

SHOWN_PER_JOB = 10
SHOWN = 40
"""Maximum metrics of a whole run that are shown."""

_Key = tuple[str, str, str]
"""Name with parameters and arm, unit, and job with its cell."""


def metrics(run: RunResponse) -> Group | None:
    """Return the metrics by job: median, unit, number of samples; None without any."""
    many = len(run.cells) > 1
    jobs = [
        _samples(f"{job.id}  {cell.id}" if many else job.id, job.metrics)
        for cell in run.cells
        for job in cell.jobs
    ]
    chosen = [row for job in jobs for row in list(job.items())[:SHOWN_PER_JOB]][:SHOWN]
    if not chosen:
        return None
    parts: list[Text | Table] = [Text("\nmetrics (median)", style="bold"), _table(chosen)]
    hidden = sum(map(len, jobs)) - len(chosen)
    if hidden > 0:
        more = f"  and {plural(hidden, 'more metric')}; --json has them all"
        parts.append(Text(more, style="dim"))
    return Group(*parts)


def _samples(place: str, measured: Iterable[MetricFact]) -> dict[_Key, list[float]]:
    """Collect a job's samples by metric, over the turns of a paired benchmark."""
    found: dict[_Key, list[float]] = {}
    for one in measured:
        details = [f"{name}={value}" for name, value in sorted(one.params.items())]
        details += [one.arm] if one.arm else []
        name = f"{one.name} ({', '.join(details)})" if details else one.name
        found.setdefault((name, one.unit, place), []).extend(one.samples)
    return found


def _table(rows: Iterable[tuple[_Key, list[float]]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (name, unit, place), samples in rows:
        median = number(statistics.median(samples)) if samples else "no sample"
        table.add_row(
            Text(f"  {one_line(name)}"),
            median,
            Text(one_line(unit)),
            f"n = {len(samples)}",
            Text(one_line(place), style="dim"),
        )
    return table
