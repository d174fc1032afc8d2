"""Every page there is, with an example of each: who adds a page adds it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.dashboard import urls
from tests.browser.world import World


@dataclass(frozen=True)
class Address:
    """One page, as the application knows it, and where to see it in a world."""

    name: str
    """Of its pictures."""
    route: str
    path: Callable[[World], str]
    statements: int = 25
    """It may ask the database so often, however many rows it shows."""
    has_picture: bool = True
    """Whether the manual shows it."""


def _kept(path: str) -> Callable[[World], str]:
    return lambda _world: path


PAGES = (
    Address("releases", urls.BOARD, _kept(urls.BOARD)),
    Address("products", urls.PRODUCTS, _kept(urls.PRODUCTS), has_picture=False),
    Address("runs", urls.RUNS, _kept(urls.RUNS)),
    Address("run", "/runs/{run}", lambda world: urls.run_url(world.red), statements=31),
    Address("run-live", "/runs/{run}", lambda world: urls.run_url(world.live.run), statements=30),
    Address(
        "run-lacking",
        "/runs/{run}",
        lambda world: urls.run_url(world.lacking),
        statements=30,
        has_picture=False,
    ),
    Address(
        "run-queued",
        "/runs/{run}",
        lambda world: urls.run_url(world.queued),
        statements=30,
        has_picture=False,
    ),
    Address(
        "cell",
        "/runs/{run}/cells/{cell}",
        lambda world: urls.cell_url(world.red, world.live.cell),
    ),
    Address(
        "result",
        "/runs/{run}/cells/{cell}/tests/{test}",
        lambda world: urls.result_url(world.red, world.live.cell, world.tests[0][0]),
        has_picture=False,
    ),
    Address(
        "slowest",
        "/runs/{run}/slowest",
        lambda world: urls.slowest_url(world.red),
        has_picture=False,
    ),
    Address("log", urls.LOG, lambda world: urls.log_url(world.live.run, world.live.cell)),
    Address("launch", urls.LAUNCH, _kept(urls.LAUNCH)),
    Address("grid", urls.GRID, _kept(urls.GRID)),
    Address("grid-of-a-run", urls.GRID, lambda world: urls.grid_url(run=world.red)),
    Address("tests", urls.TESTS, _kept(urls.TESTS), has_picture=False),
    Address("test", "/tests/{test_id}", lambda world: urls.test_url(world.tests[0][0])),
    Address("failures", urls.FAILURES, _kept(urls.FAILURES)),
    Address("failure", "/failures/{signature}", lambda world: urls.signature_url(world.signature)),
    Address("flaky", urls.FLAKY, _kept(urls.FLAKY)),
    Address("compare", urls.COMPARE, lambda world: urls.compare_url(world.green, world.red)),
    Address("compare-nothing", urls.COMPARE, _kept(urls.COMPARE), has_picture=False),
    Address("benchmarks", urls.BENCHMARKS, _kept(urls.BENCHMARKS)),
    Address(
        "benchmark",
        "/benchmarks/{job}/{metric:path}",
        lambda world: urls.benchmark_url(*world.benchmarks[0]),
    ),
    Address("gates", urls.GATES, _kept(urls.GATES)),
    Address("gate", "/gates/{gate}", _kept(urls.gate_url("release"))),
    Address("dry-run", "/gates/{gate}/dry-run", _kept(urls.dry_run_url("release"))),
    Address(
        "verdict", "/verdicts/{verdict}", lambda world: urls.verdict_url(world.left.verdicts[-1])
    ),
    Address("costs", urls.COSTS, _kept(urls.COSTS)),
    Address("audit", urls.AUDIT, _kept(urls.AUDIT), has_picture=False),
    Address("machines", urls.MACHINES, _kept(urls.MACHINES)),
    Address("known-issues", urls.KNOWN_ISSUES, _kept(urls.KNOWN_ISSUES)),
    Address("schedules", urls.SCHEDULES, _kept(urls.SCHEDULES)),
    Address(
        "schedule", "/schedules/{name}", lambda world: urls.schedule_url(world.left.schedules[0])
    ),
)
# A run has some thirty kinds of things to tell, and asks once for each.
NO_PAGES = {
    urls.SIGN_IN: "tests of its own look at it",
    urls.SIGN_IN_AT_ISSUER: "leads to the issuer",
    urls.SIGNED_IN_AT_ISSUER: "comes from the issuer",
    urls.LOG_RAW: "bytes to keep",
    urls.LOG_LINE: "one line for a reader",
    "/badges/{gate}.svg": "a picture",
}
