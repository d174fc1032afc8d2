"""What benchmarks measured, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from orchestrator.domain.facts import MetricFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One metric that a cell of a run stated."""

    run: str
    cell: str
    """The cell's name."""
    platform: str
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""
    fact: MetricFact
    probed: Mapping[str, object] = field(default_factory=dict)
    """What the agent told of its environment."""


class SeriesStore(Protocol):
    """Metrics of many runs. Each method is one transaction."""

    def of_benchmark(
        self, job: str, metric: str, *, product: str | None, runs: int
    ) -> list[Measured]:
        """What a product's newest so many runs measured; None means any product.

        In the order of the runs. Of a job that was tried again the last attempt counts; machines
        that were simulated do not; of paired benchmarks the subject's turns are here.
        """
        ...
