"""How a benchmark went over many runs, and where its level changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from statistics import median

from orchestrator.application.context import Context
from orchestrator.application.ports.trends import ChangePoint, Detector, Trend
from orchestrator.domain.fingerprint import environment_diff, fingerprint
from orchestrator.store.benchmark_series import Measured

LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """One run's measurement."""

    run: str
    version: str
    """The subject's."""
    at: datetime
    value: float
    """The median of its samples; of a paired benchmark, of the subject's turns."""
    samples: int
    probed: Mapping[str, object]

    @property
    def environment(self) -> str:
        """The fingerprint of its environment; empty where it is not known."""
        return fingerprint(self.probed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSeries:
    """One benchmark on one platform, in the order of time."""

    job: str
    metric: str
    cell: str
    platform: str
    unit: str
    direction: str
    params: Mapping[str, object]
    points: tuple[SeriesPoint, ...]
    trend: Trend

    def is_worse(self, change: ChangePoint) -> bool:
        """Whether a change point is a loss."""
        return (change.change > 0) == (self.direction == LOWER)

    def environment_diff(self, change: ChangePoint) -> tuple[tuple[str, str, str], ...]:
        """What changed in the environment at a change point: (what, before, since)."""
        if not change.environment_changed:
            return ()
        near = range(max(1, change.index - 2), min(len(self.points), change.index + 3))
        steps = ((self.points[at - 1].probed, self.points[at].probed) for at in near)
        return tuple(row for before, since in steps for row in environment_diff(before, since))


def series_of(
    context: Context, benchmark: str, *, product: str | None, platform: str | None, runs: int
) -> tuple[BenchmarkSeries, ...]:
    """Every series of a benchmark: one for each cell, unit and set of parameters.

    Args:
        context: The ports.
        benchmark: ``job/metric``.
        product: The payload's name; None means any.
        platform: The platform's id; None means every one.
        runs: So many newest runs are looked at.
    """
    job, _, metric = benchmark.partition("/")
    if not metric:
        return ()
    found = context.stores.benchmark_series.of_benchmark(job, metric, product=product, runs=runs)
    mine = [one for one in found if platform in (None, one.platform) and one.fact.samples]
    mine.sort(key=_kind)
    groups = (list(some) for _, some in groupby(mine, key=_kind))
    return tuple(_series(some, context.gate.detector) for some in groups)


def _kind(one: Measured) -> tuple[str, ...]:
    """What makes measurements comparable."""
    fact = one.fact
    params = sorted((str(name), str(value)) for name, value in fact.params.items())
    return one.cell, one.platform, fact.unit, fact.direction, repr(params)


def _series(some: Sequence[Measured], detector: Detector) -> BenchmarkSeries:
    by_run: dict[str, list[Measured]] = {}
    for one in some:
        by_run.setdefault(one.run, []).append(one)
    points = tuple(sorted(map(_point, by_run.values()), key=lambda point: (point.at, point.run)))
    first = some[0]
    return BenchmarkSeries(
        job=first.fact.job,
        metric=first.fact.name,
        cell=first.cell,
        platform=first.platform,
        unit=first.fact.unit,
        direction=first.fact.direction,
        params=first.fact.params,
        points=points,
        trend=detector.detect(
            [point.value for point in points], [point.environment for point in points]
        ),
    )


def _point(said: Sequence[Measured]) -> SeriesPoint:
    """Of one run: what it measured outside of turns, or else the subject's turns."""
    plain = [one for one in said if not one.fact.arm]
    values = list(_samples(plain)) if plain else [median(one.fact.samples) for one in said]
    last = said[-1]
    return SeriesPoint(
        run=last.run,
        version=last.version,
        at=last.at,
        value=median(values),
        samples=sum(len(one.fact.samples) for one in plain or said),
        probed=last.probed,
    )


def _samples(said: Iterable[Measured]) -> Iterable[float]:
    return (sample for one in said for sample in one.fact.samples)
