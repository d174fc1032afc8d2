"""Prometheus metrics of requests and of the database, without the default process metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

import orchestrator
from orchestrator.api.dependencies import ContextDep
from orchestrator.api.events import Streams
from orchestrator.api.security import bearer, secured
from orchestrator.domain.budget import BudgetUse
from orchestrator.domain.caller_identity import Scope
from orchestrator.store.operational_metrics import Figures, LabelledCount

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_METRICS: Mapping[LabelledCount, tuple[str, str, tuple[str, ...]]] = {
    LabelledCount.RUNS: ("runs", "Runs.", ("state", "outcome")),
    LabelledCount.CELLS: ("cells", "Cells.", ("state", "outcome")),
    LabelledCount.LEASES: ("leases", "Leases; all but `gone` may cost.", ("provider", "state")),
    LabelledCount.SPENT_USD: ("spent_usd", "Settled, of real machines.", ("provider",)),
    LabelledCount.RESERVED_USD: ("reserved_usd", "Set aside, of real machines.", ("provider",)),
    LabelledCount.COST_PER_HOUR_USD: (
        "cost_per_hour_usd",
        "Prices of live, real machines.",
        ("provider",),
    ),
    LabelledCount.ORPHANS: (
        "orphans",
        "Cloud resources that are not in the ledger.",
        ("provider",),
    ),
    LabelledCount.DELIVERIES: ("deliveries", "Notifications on their way to channels.", ("state",)),
    LabelledCount.CHANNELS: ("channels", "Notification channels.", ("state",)),
    LabelledCount.FIRINGS: (
        "firings",
        "Firings of schedules; all but `notified` are open.",
        ("state",),
    ),
    LabelledCount.VERDICTS: ("verdicts", "Verdicts of gates.", ("gate", "decision")),
}
_LIVE = ("launching", "active", "releasing")
"""Lease states that may have a machine."""

router = APIRouter(
    tags=["service"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


class RequestFigures:
    """Counts requests of an application by operation, because the number of paths is unbounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "seatrial_http_requests",
            "Requests that were answered.",
            ("method", "operation", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "seatrial_http_request_duration_seconds",
            "Until the answer began: event streams stay open for as long as one listens.",
            ("method", "operation"),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def answered(self, method: str, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, operation, str(status)).inc()
        self._seconds.labels(method, operation).observe(seconds)


class CountRequests:
    """Reports every request to `RequestFigures`."""

    def __init__(self, app: ASGIApp, *, figures: RequestFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does, and count the request when the response begins."""
        begun = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.monotonic() - begun
                self._figures.answered(
                    scope["method"], _operation(scope), message["status"], seconds
                )
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)


def _operation(scope: Connection) -> str:
    """Return the operation id; empty for unknown routes."""
    return str(getattr(scope.get("route"), "name", ""))


async def _request_figures(request: Request) -> RequestFigures:
    return cast(RequestFigures, request.app.state.figures)


async def _streams(request: Request) -> Streams:
    return cast(Streams, request.app.state.streams)


@router.get("/metrics", response_class=PlainTextResponse)
def get_metrics(
    context: ContextDep,
    streams: Annotated[Streams, Depends(_streams)],
    requests: Annotated[RequestFigures, Depends(_request_figures)],
) -> Response:
    """Return metrics in Prometheus' text format."""
    now = context.clock.now()
    registry = CollectorRegistry()
    figures = context.stores.operational_metrics.snapshot(now)
    uses = context.stores.leases.budget_uses(context.budgets, now)
    registry.register(_Snapshot(figures, now, streams.open, uses))
    text = generate_latest(registry) + generate_latest(requests.registry)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Snapshot(Collector):
    """Metrics of the database, read at once."""

    def __init__(
        self, figures: Figures, now: datetime, streams: int, budgets: Sequence[BudgetUse]
    ) -> None:
        self._figures = figures
        self._budgets = budgets
        self._now = now
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family, including families without samples."""
        for figure, (name, told, labels) in _METRICS.items():
            yield _family(name, told, labels, self._figures.of(figure))
        told = "Machines that may be billed now."
        yield _family("machines_live", told, ("provider",), self._machines())
        limits = {(x.budget.period.value, ""): float(x.budget.limit_usd) for x in self._budgets}
        yield _family("budget_limit_usd", "Budgets across runs.", ("period",), limits)
        used = {(x.budget.period.value, ""): float(x.used_usd) for x in self._budgets}
        yield _family("budget_used_usd", "Spent or reserved of it.", ("period",), used)
        launches = {(name, ""): value for name, value in self._figures.launch_s.items()}
        told = "From a launch call until the machine answered: the median of a day."
        yield _family("launch_seconds", told, ("provider",), launches)
        oldest = self._figures.oldest_waiting_at
        age_s = (self._now - oldest).total_seconds() if oldest else 0.0
        quiet = self._figures.quiet_since
        lag_s = (self._now - quiet).total_seconds() if quiet else 0.0
        for name, told, value in (
            ("outbox_oldest_age_seconds", "Age of the oldest waiting delivery.", max(0.0, age_s)),
            ("ingest_lag_seconds", "Since the last event of a running attempt.", max(0.0, lag_s)),
            ("firings_late", "Open firings past their deadline.", self._figures.late_firings),
            ("event_streams", "Watchers connected now.", self._streams),
        ):
            yield GaugeMetricFamily(f"seatrial_{name}", told, value=value)
        yield _build()

    def _machines(self) -> dict[tuple[str, str], float]:
        live: dict[tuple[str, str], float] = {}
        for (provider, state), number in self._figures.of(LabelledCount.LEASES).items():
            counted = number if state in _LIVE else 0.0
            live[provider, ""] = live.get((provider, ""), 0.0) + counted
        return live


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, str], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"seatrial_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key[: len(labels)], value)
    return family


def _build() -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "seatrial_build_info", "Which program this is.", labels=("version", "python")
    )
    python = ".".join(map(str, sys.version_info[:3]))
    family.add_metric((orchestrator.__version__, python), 1)
    return family
