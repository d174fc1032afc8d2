"""What the API tells of benchmarks over many runs."""

from __future__ import annotations

from datetime import datetime

from orchestrator.api.models import ResponseModel


class SeriesPointResponse(ResponseModel):
    """One run's measurement."""

    run: str
    version: str
    """The subject's."""
    at: datetime
    """When its run was launched, or is said to have happened."""
    value: float
    """The median of its samples; of a paired benchmark, of the subject's turns."""
    samples: int
    environment: str
    """Fingerprint of packages, driver and device; empty where it is not known."""


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
    points: list[SeriesPointResponse]
    changes: list[ChangeResponse]
    """They inform; no gate looks at them."""
    autocorrelation: float | None
    """Of each value with the one before; null for fewer than 8 values."""
    is_noisy: bool
    """The change points prove nothing, for the reasons in `doubts`."""
    doubts: list[str]


class SeriesListResponse(ResponseModel):
    """Every series of a benchmark."""

    items: list[SeriesResponse]
