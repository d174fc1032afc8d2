"""Metrics of a run's jobs on a terminal, each with its median."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence, Set

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.run_record import RunResponse
from orchestrator.domain.units import number, plural

SHOWN_PER_JOB = 10
SHOWN = 40
"""Maximum metrics of a whole run that are shown."""

_PARAMS = 4
"""Maximum parameters that are shown of a metric."""
_Params = tuple[tuple[str, str], ...]


def metrics(run: RunResponse) -> Group | None:
    """Return the metrics by job: median, unit, number of samples; None without any.

    Metrics of a paired benchmark are shown with their baseline.
    """
    many = len(run.cells) > 1
    jobs = [
        (f"{job.id}  {cell.id}" if many else job.id, job) for cell in run.cells for job in cell.jobs
    ]
    plain = [_plain(place, job.metrics) for place, job in jobs]
    paired = [[_paired(place, one) for one in job.pairs] for place, job in jobs]
    parts = [
        *_block("metrics (median)", plain),
        *_block("paired with the baseline (median)", paired),
    ]
    return Group(*parts) if parts else None


def _block(title: str, jobs: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[Text | Table]:
    """Yield the first rows of each job below a title, and the number of the others."""
    chosen = [row for job in jobs for row in job[:SHOWN_PER_JOB]][:SHOWN]
    if not chosen:
        return
    yield Text(f"\n{title}", style="bold")
    yield _table(chosen)
    hidden = sum(map(len, jobs)) - len(chosen)
    if hidden > 0:
        more = f"  and {plural(hidden, 'more metric')}; --json has them all"
        yield Text(more, style="dim")


def _plain(place: str, measured: Iterable[MetricFact]) -> list[tuple[str, ...]]:
    """Return name, median, unit, number of samples and place of each metric."""
    found: dict[tuple[str, _Params, str], list[float]] = {}
    for one in measured:
        params = tuple((name, str(value)) for name, value in sorted(one.params.items()))
        found.setdefault((one.name, params, one.unit), []).extend(one.samples)
    shared: dict[str, set[tuple[str, str]]] = {}
    for name, params, _ in found:
        shared[name] = shared.get(name, set(params)) & set(params)
    return [
        (_name(name, params, shared[name]), _median(samples), unit, f"n = {len(samples)}", place)
        for (name, params, unit), samples in found.items()
    ]


def _name(name: str, params: _Params, shared: Set[tuple[str, str]]) -> str:
    """Return the name with the parameters that differ between metrics of the same name."""
    own = [f"{key}={value}" for key, value in params if (key, value) not in shared]
    more = ["…"] if len(own) > _PARAMS else []
    return f"{name} ({', '.join(own[:_PARAMS] + more)})" if own else name


def _paired(place: str, one: Pairs) -> tuple[str, ...]:
    """Return name, median, unit, baseline, change, number of pairs and place."""
    pairs = plural(len(one.subject), "pair")
    change = f"{abs(one.slowdown):.1%} {'slower' if one.slowdown > 0 else 'faster'}"
    baseline = f"baseline {_median(one.baseline)}"
    return one.metric, _median(one.subject), one.unit, baseline, change, pairs, place


def _median(samples: Sequence[float]) -> str:
    return number(statistics.median(samples)) if samples else "no sample"


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table of rows: a name, a figure, its details, and the place."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    for _ in rows[0][2:-1]:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for name, *told in rows:
        table.add_row(Text(f"  {one_line(name)}"), *(Text(one_line(word)) for word in told))
    return table
