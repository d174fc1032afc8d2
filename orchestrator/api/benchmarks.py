"""Benchmarks over many runs: series and their change points."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse
from orchestrator.api.security import bearer, secured
from orchestrator.application.benchmarks import BenchmarkSeries, series_of
from orchestrator.domain.caller_identity import Scope

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
) -> ListResponse[BenchmarkSeries]:
    """Return a benchmark over the newest runs with its change points, which block no release."""
    found = series_of(context, benchmark, product=product, platform=platform, runs=runs)
    if not found:
        raise NotFoundError(
            f"none of the newest {runs} runs measured {benchmark!r}; a benchmark is named "
            "job/metric, and GET /api/v1/runs/{id} lists the metrics of each job"
        )
    return ListResponse(items=list(found))
