"""Benchmarks over many runs: series and their change points."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.benchmarks import BenchmarkSeries, SeriesPoint, series_of
from orchestrator.application.ports.statistics import ChangePoint
from orchestrator.domain.caller_identity import Scope


class DifferenceResponse(ResponseModel):
    """A difference of the environment."""

    what: str
    before: str
    since: str


class ChangeResponse(ResponseModel):
    """A change point of a series."""

    run: str
    """The first run on the new level."""
    index: int
    """Index of its point."""
    before: float
    after: float
    """Medians on both sides."""
    change: float
    """Relative change: 0.05 is 5 % higher."""
    is_worse: bool
    """Whether it is a loss, by the metric's direction."""
    p: float
    """p-value: probability of such a step in a series without any."""
    environment_changed: bool
    environment: list[DifferenceResponse]
    """Environment changes at about the same time."""


class SeriesResponse(ResponseModel):
    """A benchmark on one platform, in order of time."""

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
    """Change points; they inform, and no gate uses them."""
    autocorrelation: float | None
    """Lag-1 autocorrelation; null for fewer than 8 values."""
    is_noisy: bool
    """Whether the change points prove nothing, for the reasons in `doubts`."""
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
    runs: Annotated[int, Query(ge=1, le=1000, description="Number of newest runs")] = 200,
) -> ListResponse[SeriesResponse]:
    """Return a benchmark over the newest runs with its change points; they block no release."""
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
