"""Runs of versions for tests of pages: launched, reported, done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from tests.integration.api_context import Desk

TRACEBACK = "tests/test_a.py:3: in one\n    lib.work()\nlib/core.py:9: in work\nE   ValueError: 3"
_MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: {name}}}
subject: {{name: proof, version: "{version}"}}
limits: {{max_usd: "9.00"}}
platforms:
{platforms}
jobs:
  - {{select: "{jobs}", on: all}}
"""


_REPORTED = {"xfailed": "skipped", "xpassed": "passed"}
"""What pytest reports of a test that is expected to fail."""


def _more(word: str, words: str) -> dict[str, str]:
    if word == "failed":
        return {"longrepr": words}
    return {"wasxfail": "known"} if word in _REPORTED else {}


def launch(
    desk: Desk,
    version: str,
    *,
    platforms: Sequence[str] = ("here", "there"),
    name: str = "nightly",
    jobs: str = "*",
) -> str:
    """A run of a version on these platforms; its id."""
    rows = "\n".join(f"  - {{id: {one}, provider: local}}" for one in platforms)
    matrix = _MATRIX.format(name=name, version=version, platforms=rows, jobs=jobs)
    made = len(desk.database.stores.runs.page(limit=100, before=None)[0])
    return str(desk.launch(f"key-{made}", matrix=matrix)["id"])


def report(
    desk: Desk,
    run: str,
    cell: str,
    tests: Mapping[str, str],
    *,
    collected: Sequence[str] = (),
    words: str = TRACEBACK,
) -> None:
    """The cell is at work, and says how tests went."""
    agent = desk.begin(run, cell)
    manifest = agent.manifest(*tests, *collected)
    lines = [
        agent.test(name, _REPORTED.get(word, word), **_more(word, words))
        for name, word in tests.items()
    ]
    assert agent.send(manifest, *lines)


def conclude(desk: Desk, run: str, cell: str, outcome: Outcome, reason: str = "") -> None:
    """The cell is done."""
    stores, at = desk.database.stores, desk.clock.now()
    cell_id = desk.cell_id(run, cell)
    if stores.cells.get(cell_id).state is CellState.QUEUED:
        assert stores.cells.admit(cell_id, f"{cell_id}-1", max_parallel=9, at=at)
    for state in (CellState.COLLECTING, CellState.RELEASING):
        if state is CellState.RELEASING or stores.cells.get(cell_id).state is CellState.RUNNING:
            stores.cells.enter(cell_id, state, at=at)
    stores.evidence.settle(cell_id, [])
    stores.cells.conclude(cell_id, Cause(outcome, reason), at=at)


def night(
    desk: Desk,
    version: str,
    cells: Mapping[str, Mapping[str, str]],
    *,
    name: str = "nightly",
    jobs: str = "*",
) -> str:
    """A whole run: each cell with its tests; a cell without any is not available."""
    run = launch(desk, version, platforms=list(cells), name=name, jobs=jobs)
    worst = Outcome.PASSED
    for cell, tests in cells.items():
        if not tests:
            conclude(desk, run, cell, Outcome.NOT_AVAILABLE, "capacity")
            continue
        report(desk, run, cell, tests)
        outcome = Outcome.FAILED if "failed" in tests.values() else Outcome.PASSED
        conclude(desk, run, cell, outcome, "tests" if outcome is Outcome.FAILED else "")
        worst = max(worst, outcome, key=[Outcome.PASSED, Outcome.FAILED].index)
    assert desk.database.stores.runs.finish(run, worst, at=desk.clock.now())
    return run
