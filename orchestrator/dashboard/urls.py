"""The addresses of pages: the one place that knows them."""

from __future__ import annotations

from urllib.parse import quote, urlencode

BOARD = "/"
RUNS = "/runs"
LAUNCH = "/launch"
GRID = "/grid"
TESTS = "/tests"
FAILURES = "/failures"
FLAKY = "/flaky"
COMPARE = "/compare"
BENCHMARKS = "/benchmarks"
GATES = "/gates"
COSTS = "/costs"
MACHINES = "/machines"
KNOWN_ISSUES = "/known-issues"
SCHEDULES = "/schedules"
SIGN_IN = "/login"
SIGN_OUT = "/logout"
API = "/api/v1"


def run_url(run: str) -> str:
    """A run."""
    return f"{RUNS}/{_part(run)}"


def cell_url(run: str, cell: str) -> str:
    """The tests of a cell."""
    return f"{run_url(run)}/cells/{_part(cell)}"


def log_url(run: str, cell: str) -> str:
    """The log of a cell."""
    return f"{cell_url(run, cell)}/log"


def grid_url(**asked: str) -> str:
    """Tests by runs."""
    return with_query(GRID, **asked)


def test_url(test: int) -> str:
    """The history of a test."""
    return f"{TESTS}/{test}"


def signature_url(signature: str) -> str:
    """One kind of failure."""
    return f"{FAILURES}/{_part(signature)}"


def compare_url(old: str, new: str) -> str:
    """Two runs beside each other."""
    return with_query(COMPARE, a=old, b=new)


def benchmark_url(job: str, metric: str) -> str:
    """A benchmark over time."""
    return f"{BENCHMARKS}/{_part(job)}/{_part(metric)}"


def gate_url(gate: str) -> str:
    """A gate."""
    return f"{GATES}/{_part(gate)}"


def verdict_url(verdict: str) -> str:
    """A verdict."""
    return f"/verdicts/{_part(verdict)}"


def schedule_url(name: str) -> str:
    """A schedule."""
    return f"{SCHEDULES}/{_part(name)}"


def with_query(path: str, **asked: str) -> str:
    """An address with what is asked; what is empty is left out."""
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{path}?{query}" if query else path


def _part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")
