"""Makers of realistic addresses for every page; each new page needs an entry here."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from benchmarks.dashboard.plans import BENCHMARK, PRODUCT
from orchestrator.dashboard import urls
from orchestrator.domain.cell import Run
from orchestrator.store.stores import Stores

_RECENT = 60
"""Number of newest runs, which are requested most of the time."""
_NOT_MEASURED = {
    *("/login", "/login/oidc", "/login/oidc/callback", "/logout"),
    "/runs/{}/cells/{}/log/raw",
}
"""Routes that read no evidence, or that return a file to save."""
_GATES = ("release", "nightly")
_NAMED = re.compile(r"\{[^}]*\}")


@dataclass
class Known:
    """Content of the database, from which addresses are made."""

    stores: Stores
    chance: random.Random

    def __post_init__(self) -> None:
        runs: list[Run] = []
        before: str | None = None
        while True:
            page, before = self.stores.runs.page(limit=200, before=before)
            runs += page
            if before is None:
                break
        self.nightlies = [run for run in runs if run.matrix_name == "nightly"]
        self.runs = runs
        measured = next(run for run in runs if run.matrix_name == "benchmarks")
        cells = self.stores.cells.of_run(measured.id)
        self.metrics = [metric.name for metric in self.stores.results.metrics(cells[0].id)]
        self.tests = [
            test.id
            for test in self.stores.tests.page(
                product=PRODUCT, job=None, contains="", limit=1_000, after=None
            )
        ]
        failures = self.stores.failures.of_product(PRODUCT, runs=40).failures
        self.signatures = sorted({failure.signature.id for failure in failures})
        newest = self.nightlies[0].id
        self.longest = newest, self.stores.cells.of_run(newest)[0].name
        """The log of a million lines."""
        self.verdicts = [verdict.id for verdict in self.stores.gates.verdicts(limit=50)]

    def run(self) -> Run:
        """Return a random run, mostly a recent one."""
        old = self.chance.random() < 0.2
        return self.chance.choice(self.nightlies if old else self.nightlies[:_RECENT])

    def cell(self) -> tuple[str, str]:
        """Return the id of a random run and the name of one of its cells."""
        run = self.run()
        return run.id, self.chance.choice(self.stores.cells.of_run(run.id)).name

    def result(self) -> tuple[str, int]:
        """Return the address of a random test's last cell, and the test's number."""
        [last] = self.stores.grids.last([self.chance.choice(self.tests)])
        return urls.cell_url(last.run, last.cell), last.test

    def logged(self) -> tuple[str, str]:
        """Return the run and the name of a cell whose log was kept."""
        while True:
            run = self.chance.choice(self.nightlies[:8])
            cell = self.chance.choice(self.stores.cells.of_run(run.id))
            if self.stores.evidence.log(cell.id, after=0, limit=1)[0]:
                return run.id, cell.name

    def __call__(self, things: Sequence[str]) -> str:
        """Return a random element."""
        return self.chance.choice(things)


Maker = Callable[[Known], str]

WORDS = ("linalg", "attention", "float16", "keeps_dtype", "test_rope", "nothing is called so")
"""Search words."""


def _with(path: str, **asked: Maker | str) -> Maker:
    """Return a maker of an address with a query, whose values are texts or makers."""

    def make(known: Known) -> str:
        told = {name: one if isinstance(one, str) else one(known) for name, one in asked.items()}
        return urls.with_query(path, **told)

    return make


def _words(known: Known) -> str:
    return known(WORDS)


def _log(known: Known) -> str:
    return urls.log_url(*known.logged())


MAKERS: dict[str, tuple[Maker, ...]] = {
    urls.BOARD: (_with(urls.BOARD),),
    urls.PRODUCTS: (_with(urls.PRODUCTS),),
    urls.RUNS: (
        _with(urls.RUNS),
        _with(urls.RUNS, before=lambda known: known.run().id),
        _with(urls.RUNS, outcome="failed"),
        _with(urls.RUNS, matrix="benchmarks"),
        _with(urls.RUNS, version=lambda known: known.run().subject_version),
    ),
    f"{urls.RUNS}/{{}}": (lambda known: urls.run_url(known.run().id),),
    f"{urls.RUNS}/{{}}/slowest": (lambda known: urls.slowest_url(known.run().id),),
    f"{urls.RUNS}/{{}}/cells/{{}}": (lambda known: urls.cell_url(*known.cell()),),
    f"{urls.RUNS}/{{}}/cells/{{}}/log": (
        _log,
        lambda known: f"{_log(known)}?line={known.chance.randrange(1, 900)}",
        lambda known: f"{urls.log_url(*known.longest)}?line={known.chance.randrange(1, 900_000)}",
        lambda known: f"{_log(known)}?find=FAILED&go=next",
        lambda known: f"{urls.log_url(*known.longest)}?find=FAILED&go=previous",
        lambda known: f"{urls.log_url(*known.longest)}?find=is+not+there&go=next",
    ),
    f"{urls.RUNS}/{{}}/cells/{{}}/log/lines/{{}}": (
        lambda known: f"{_log(known)}/lines/{known.chance.randrange(1, 40)}",
    ),
    f"{urls.RUNS}/{{}}/cells/{{}}/tests/{{}}": (
        lambda known: "{}/tests/{}".format(*known.result()),
    ),
    urls.LAUNCH: (_with(urls.LAUNCH),),
    urls.GRID: (
        _with(urls.GRID),
        _with(urls.GRID, q=_words),
        _with(urls.GRID, job="integration"),
    ),
    urls.TESTS: (_with(urls.TESTS), _with(urls.TESTS, q=_words), _with(urls.TESTS, job="unit")),
    f"{urls.TESTS}/{{}}": (
        lambda known: urls.test_url(known.chance.choice(known.tests)),
        lambda known: f"{urls.test_url(known.chance.choice(known.tests))}?cell=aws-l4",
    ),
    urls.FAILURES: (_with(urls.FAILURES), _with(urls.FAILURES, runs="100")),
    f"{urls.FAILURES}/{{}}": (lambda known: urls.signature_url(known(known.signatures)),),
    urls.FLAKY: (_with(urls.FLAKY), _with(urls.FLAKY, runs="50")),
    urls.COMPARE: (
        _with(urls.COMPARE),
        lambda known: urls.compare_url(known.run().id, known.run().id),
    ),
    urls.BENCHMARKS: (_with(urls.BENCHMARKS), _with(urls.BENCHMARKS, q="matmul")),
    f"{urls.BENCHMARKS}/{{}}/{{}}": (
        lambda known: urls.benchmark_url(BENCHMARK, known(known.metrics)),
    ),
    urls.GATES: (_with(urls.GATES),),
    f"{urls.GATES}/{{}}": (lambda known: urls.gate_url(known(_GATES)),),
    f"{urls.GATES}/{{}}/dry-run": (lambda known: f"{urls.gate_url(known(_GATES))}/dry-run",),
    "/verdicts/{}": (lambda known: urls.verdict_url(known(known.verdicts)),),
    urls.COSTS: (_with(urls.COSTS),),
    urls.MACHINES: (_with(urls.MACHINES),),
    urls.AUDIT: (_with(urls.AUDIT),),
    urls.KNOWN_ISSUES: (_with(urls.KNOWN_ISSUES),),
    urls.SCHEDULES: (_with(urls.SCHEDULES),),
    f"{urls.SCHEDULES}/{{}}": (lambda _: urls.schedule_url("nightly"),),
    "/badges/{}.svg": (lambda known: f"/badges/{known(_GATES)}.svg",),
}
"""Makers by route; path parameters are replaced by ``{}``."""


def routes_of(application: FastAPI) -> list[str]:
    """Return the measured GET routes of the pages; path parameters are replaced by ``{}``."""
    paths = {_NAMED.sub("{}", route.path) for route in _routes(application.routes)}
    return sorted(paths - _NOT_MEASURED)


def _routes(routes: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _routes(included.routes)
        elif isinstance(route, APIRoute) and "GET" in route.methods:
            yield route
