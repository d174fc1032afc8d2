"""Measure how long the pages take over a full database, on Postgres and on SQLite.

Run it as `python -m benchmarks.dashboard --size large`, or over databases that are filled already:
`python -m benchmarks.dashboard --url postgresql://... --home FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from pydantic import SecretStr

from benchmarks.dashboard.addresses import MAKERS, Known, routes_of
from benchmarks.dashboard.asking import Asked, Statements, Summary, ask, counting
from benchmarks.dashboard.fill import fill
from benchmarks.dashboard.sizes import SIZES
from orchestrator.api.app import create_app
from orchestrator.application.tokens import create_token
from orchestrator.bootstrap.controller_process import freeze_start_up_objects
from orchestrator.bootstrap.controller_wiring import Parts, build
from orchestrator.bootstrap.http_server import AsgiDispatch
from orchestrator.config import Settings
from orchestrator.dashboard.app import create_dashboard
from orchestrator.domain.caller_identity import Scope
from tests.postgres import PostgresMissingError, start_postgres

FLOOR_S = {"postgres": 0.150, "sqlite": 0.300}
"""Limit of the 95th percentile of every page's server time, in seconds."""
MOST_BYTES = 150 * 1024
"""Maximum size of a compressed page."""
MOST_NODES = 5_000
BASELINE = "/healthz"
"""Route that reads almost nothing, as a baseline on the same machine."""
_SLOW_SHOWN = 8
_SHOWN = 600
"""Maximum number of characters that are shown of a slow statement."""
_LISTS = re.compile(r"(?:(?:%\(\w+\)s|\?)(?:::[A-Z]+)?(?: COLLATE \"C\")?(?:, )?){3,}")


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one database."""

    name: str
    summaries: Sequence[Summary]
    baseline_s: float
    forgotten: Sequence[str]
    """Routes for which `addresses` has no maker."""
    by_cpu: bool
    """Whether CPU time is judged instead of wall time, for a machine that does other work."""

    def p95(self, one: Summary) -> float:
        """Return the 95th percentile that is compared with the limit."""
        return one.cpu_p95 if self.by_cpu else one.p95

    @property
    def missed(self) -> list[str]:
        """A sentence for each missed limit, failed page and unknown route."""
        found = [f"{route}: nobody knows how to ask for it" for route in self.forgotten]
        for one in self.summaries:
            floor = FLOOR_S[self.name]
            if one.failures:
                found.append(f"{one.route}: answered {sorted(one.failures)}: {one.worst.path}")
            if self.p95(one) > floor:
                found.append(f"{one.route}: p95 {self.p95(one) * 1e3:.0f} ms: {one.worst.path}")
            if one.most("sent_bytes") > MOST_BYTES:
                found.append(f"{one.route}: {one.most('sent_bytes'):,} bytes compressed")
            if one.most("nodes") > MOST_NODES:
                found.append(f"{one.route}: {one.most('nodes'):,} elements")
        return found


async def _measure(parts: Parts, name: str, args: argparse.Namespace) -> Measured:
    api = create_app(parts.context, guard=None, revision=lambda: "none")
    dashboard = create_dashboard(parts.context)
    _, secret = create_token(parts.context, "benchmark", Scope.ADMIN, days=1)
    headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": "gzip"}
    transport = httpx.ASGITransport(AsgiDispatch(api, dashboard), raise_app_exceptions=False)
    known = Known(parts.context.stores, random.Random(args.seed))
    routes = [route for route in routes_of(dashboard) if args.only in route]
    freeze_start_up_objects()
    with counting(parts.database.sessions.engine) as statements:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as client:
            baseline = await _summary(client, BASELINE, [BASELINE] * args.times, statements)
            summaries = []
            for route in routes:
                if route not in MAKERS:
                    continue
                makers = MAKERS[route]
                paths = [makers[n % len(makers)](known) for n in range(args.times)]
                summaries.append(await _summary(client, route, paths, statements, len(makers)))
                _print(summaries[-1], baseline.p50)
    _print_slowest(statements, args)
    forgotten = [route for route in routes if route not in MAKERS]
    return Measured(name, summaries, baseline.p50, forgotten, args.by_cpu)


async def _summary(
    client: httpx.AsyncClient,
    route: str,
    paths: Sequence[str],
    statements: Statements,
    first: int = 1,
) -> Summary:
    for path in paths[:first]:
        await ask(client, path, statements)  # what is read once a process is no page's
    answers: list[Asked] = [await ask(client, path, statements) for path in paths]
    return Summary(route, tuple(answers))


_HEAD = (
    f"{'page':34} {'p50 ms':>8} {'p95 ms':>8} {'p95 CPU':>8} {'x base':>7} {'in SQL':>7}"
    f" {'stmts':>6} {'raw KB':>8} {'gzip KB':>8} {'nodes':>6}"
)


def _print(one: Summary, baseline_s: float) -> None:
    print(
        f"{one.route:34} {one.p50 * 1e3:8.1f} {one.p95 * 1e3:8.1f} {one.cpu_p95 * 1e3:8.1f}"
        f" {one.p95 / baseline_s:7.1f} {one.database_part:7.0%} {one.most('statements'):6}"
        f" {one.most('raw_bytes') / 1024:8.1f} {one.most('sent_bytes') / 1024:8.1f}"
        f" {one.most('nodes'):6}",
        flush=True,
    )


def _print_slowest(statements: Statements, args: argparse.Namespace) -> None:
    if not args.slowest:
        return
    ranked = sorted(statements.slowest.items(), key=lambda item: -item[1])
    for statement, seconds in ranked[:_SLOW_SHOWN]:
        print(f"--- {seconds * 1e3:.0f} ms\n{_LISTS.sub('...', statement)[:_SHOWN]}")


def _open(home: Path, url: str) -> Parts:
    return build(Settings(home=home, database_url=SecretStr(url)), runs_cells=False)


def _over(url: str, home: Path, name: str, size: str, args: argparse.Namespace) -> Measured:
    """Fill the database if it is empty, and measure."""
    parts = _open(home, url)
    try:
        if not parts.database.stores.runs.find("latest"):
            filled = fill(parts, SIZES[size], now=datetime.now(UTC))
            print(
                f"{name}: {filled.results:,} results and {filled.metrics:,} metrics filled in"
                f" within {filled.took_s:.0f} s"
            )
        print(f"\n{name}\n{_HEAD}")
        return asyncio.run(_measure(parts, name, args))
    finally:
        parts.database.close()


def _both(args: argparse.Namespace) -> list[Measured]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if args.size != "medium":
            server = start_postgres(fast=False)
            try:
                found.append(_over(server.create("app"), home, "postgres", args.size, args))
            finally:
                server.stop()
        if not args.no_sqlite:
            url = f"sqlite:///{home / 'app.db'}"
            found.append(_over(url, home, "sqlite", "medium", args))
    return found


def main() -> int:
    """Measure; return 1 if a limit is missed, 2 without Postgres."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="large", help="of Postgres")
    parser.add_argument("--times", type=int, default=40, help="each page is asked for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="pages whose route has this in it")
    parser.add_argument("--url", help="of a database that is filled already, or empty")
    parser.add_argument("--home", type=Path, default=Path("var"))
    parser.add_argument("--no-sqlite", action="store_true")
    parser.add_argument("--by-cpu", action="store_true", help="judge the work, not the wait")
    parser.add_argument("--slowest", action="store_true", help="print the slowest statements")
    args = parser.parse_args()
    try:
        if args.url:
            kind = "sqlite" if args.url.startswith("sqlite") else "postgres"
            found = [_over(args.url, args.home, kind, args.size, args)]
        else:
            found = _both(args)
    except PostgresMissingError as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return 2
    for measured in found:
        for line in measured.missed:
            print(f"{measured.name}: {line}")
    print(f"dashboard p95: {'; '.join(map(_figures, found))}")
    return 1 if any(measured.missed for measured in found) else 0


def _figures(measured: Measured) -> str:
    slowest = max(measured.summaries, key=measured.p95)
    worst_s = measured.p95(slowest)
    return (
        f"{measured.name} at most {worst_s * 1e3:.0f} ms{' of work' * measured.by_cpu}"
        f" ({slowest.route}, {worst_s / measured.baseline_s:.0f} x {BASELINE}) of"
        f" {len(measured.summaries)} pages, floor {FLOOR_S[measured.name] * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
