"""How long ten thousand tests take to be gathered by signature, on SQLite and on Postgres.

A fifth of them failed, in two hundred ways. Timed are storing them, telling the run with its
clusters against fifty known issues, the clusters of fifty such runs, and signing all anew. Run it
as `python -m benchmarks.failures`.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date

from sqlalchemy import text

from benchmarks.ingest import with_postgres, with_sqlite
from benchmarks.timing import median_of
from orchestrator.application.describe_run import describe_run
from orchestrator.domain.failure_signature import failure_groups
from orchestrator.domain.known_issue import IssueMatch, KnownIssue
from orchestrator.store.database import Database
from tests.databases import NOW, Agent, attempt, create
from tests.postgres import PostgresMissingError

TESTS = 10_000
KINDS = 200
ISSUES = 50
GOAL_S = 2.0
"""Goal for evaluating the run, in seconds."""
TRACE = """\
tests/test_{kind}.py:{line}: in test_{number}
    engine = Engine(config)
library/engine_{kind}.py:{line}: in build
    raise ValueError(f"cannot build {{self}}")
E   ValueError: cannot build <library.Engine object at 0x7f{number:06x}> of kind k{letters}"""


def longrepr(number: int) -> str:
    """Return a traceback of one of the kinds of failures."""
    kind = number % KINDS
    letters = chr(97 + kind % 26) + chr(97 + kind // 26)
    return TRACE.format(kind=kind, line=number % 90 + 1, number=number, letters=letters)


def store(database: Database, run_id: str) -> None:
    """Store a run of one cell with all the tests."""
    stores = database.stores
    agent = Agent(stores, attempt(stores, create(stores, run_id, platforms=1)[0]))
    for begin in range(0, TESTS, 2_000):
        lines = []
        for number in range(begin, begin + 2_000):
            bad = number % 5 == 0
            outcome = "failed" if bad else "passed"
            said = longrepr(number // 5) if bad else ""
            record = {"record": "outcome", "nodeid": f"tests/t.py::test_{number}"}
            lines.append(agent.line("test", "unit", **record, outcome=outcome, longrepr=said))
        assert agent.send(*lines)


def add_issues(database: Database) -> None:
    """Add known issues, some of which match."""
    for number in range(ISSUES):
        issue = KnownIssue(
            id="",
            product="proof",
            title=f"issue {number}",
            match=IssueMatch(exception="ValueError", frame=f"engine_{number}.*"),
            owner="me",
            opened=date(2026, 1, 1),
            expires=date(2027, 1, 1),
        )
        database.stores.known_issues.add(issue)


def regroup(database: Database) -> None:
    """Compute all signatures again."""
    with database.sessions.write() as session:
        session.execute(text("UPDATE test_result SET signature = NULL"))
    while database.stores.failures.regroup(limit=1_000):
        pass


def measure(database: Database, runs: int) -> tuple[float, float]:
    """Return the seconds for evaluating one run, and for grouping the failures of many."""
    add_issues(database)
    storing = median_of(lambda: store(database, "run-0"), 1)
    for number in range(1, runs):
        store(database, f"run-{number}")
    stores = database.stores
    found = describe_run(stores, "run-0", at=NOW).failure_groups
    assert [group.count for group in found] == [TESTS // 5 // KINDS] * KINDS
    telling = median_of(lambda: describe_run(stores, "run-0", at=NOW), 3)
    many = median_of(
        lambda: failure_groups(stores.failures.of_product("proof", runs=runs).failures), 3
    )
    anew = median_of(lambda: regroup(database), 1)
    print(
        f"  stored {TESTS:,} tests in {storing:.2f} s, told the run with {KINDS} clusters in"
        f" {telling:.2f} s, gathered {runs} runs in {many:.2f} s,"
        f" signed {runs * TESTS // 5:,} failures anew in {anew:.2f} s"
    )
    return telling, many


def main() -> int:
    """Measure both; a missed goal is printed and does not fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    print("sqlite:")
    told = [with_sqlite(lambda database: measure(database, args.runs))[0]]
    try:
        print("postgres:")
        told.append(with_postgres(lambda database: measure(database, args.runs))[0])
    except PostgresMissingError as missing:
        print(f"  not measured: {missing}")
    said = ", ".join(f"{seconds:.2f}" for seconds in told)
    print(f"failures by signature: told in {said} s (sqlite, postgres); goal {GOAL_S} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
