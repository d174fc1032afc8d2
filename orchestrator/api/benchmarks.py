"""Benchmarks over many runs: series and their change points."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.benchmarks import BenchmarkSeries, SeriesPoint, series_of
from orchestrator.application.ports.trends import ChangePoint
from orchestrator.domain.caller_identity import Scope


class DifferenceResponse(ResponseModel):
    """Something that is another one since."""

    what: str
    before: str
    since: str


class ChangeResponse(ResponseModel):
    """A step of a series that stayed."""

    run: str
    """The first on the new level."""
    index: int
    """Of that run's point."""
    before: float
    after: float
    """Medians of the levels on both sides."""
    change: float
    """0.05: the new level is 5 % higher."""
    is_worse: bool
    """By the metric's direction."""
    p: float
    """Of a step as clear as this one in a series that has none."""
    environment_changed: bool
    environment: list[DifferenceResponse]
    """What changed in the environment at about the same time."""


class SeriesResponse(ResponseModel):
    """One benchmark on one platform, in the order of time."""

    job: str
    metric: str
    cell: str
    platform: str
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: dict[str, object]
    points: list[SeriesPoint]
    changes: list[ChangeResponse]
    """They inform; no gate looks at them."""
    autocorrelation: float | None
    """Of each value with the one before; null for fewer than 8 values."""
    is_noisy: bool
    """The change points prove nothing, for the reasons in `doubts`."""
    doubts: list[str]


reading = APIRouter(
    tags=["history"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)
BenchmarkId = Annotated[
    str,
    Path(
        description="``job/metric``, as a run shows them",
        max_length=1000,
        examples=["moe/tokens_per_s"],
    ),
]


@reading.get("/benchmarks/{benchmark:path}/series")
def get_benchmark_series(
    context: ContextDep,
    benchmark: BenchmarkId,
    product: Annotated[str | None, Query(description="The payload's name", max_length=300)] = None,
    platform: Annotated[str | None, Query(description="A platform's id", max_length=300)] = None,
    runs: Annotated[int, Query(ge=1, le=1000, description="So many newest runs")] = 200,
) -> ListResponse[SeriesResponse]:
    """A benchmark over the newest runs, and where its level changed: to look at, never to block."""
    found = series_of(context, benchmark, product=product, platform=platform, runs=runs)
    if not found:
        raise NotFoundError(
            f"none of the newest {runs} runs measured {benchmark!r}; a benchmark is named "
            "job/metric, and GET /api/v1/runs/{id} lists the metrics of each job"
        )
    return ListResponse(items=[_tell(one) for one in found])


def _tell(series: BenchmarkSeries) -> SeriesResponse:
    return SeriesResponse.of(
        series,
        series.trend,
        changes=[_change(series, change) for change in series.trend.changes],
    )


def _change(series: BenchmarkSeries, change: ChangePoint) -> ChangeResponse:
    return ChangeResponse.of(
        change,
        run=series.points[change.index].run,
        is_worse=series.is_worse(change),
        environment=[
            DifferenceResponse(what=what, before=before, since=since)
            for what, before, since in series.environment_diff(change)
        ],
    )
