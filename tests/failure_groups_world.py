"""A product whose tests run day after day, for questions about kinds of failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.commit import Commit
from orchestrator.domain.matrix import Subject, expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.stores import Stores
from tests.databases import MANIFEST, Agent, a_run, attempt, matrix

RETRIED = "retried"
"""Instead of what a test raised: it failed, and passed when it was tried again."""


def raises(words: str, exception: str = "ValueError", frame: str = "") -> str:
    """The traceback of a failure."""
    where = f"lib/{frame.partition('.')[0]}.py:3: in {frame.partition('.')[2]}\n" if frame else ""
    return f"{where}E   {exception}: {words}"


@dataclass
class KindsWorld:
    """Runs of one product, one a day unless they are said to be of the same one."""

    stores: Stores
    start: datetime
    runs: list[str] = field(default_factory=list)

    def run(
        self,
        *cells: Mapping[str, str],
        version: str = "1.10",
        days: float | None = None,
        done: bool = True,
        packages: Mapping[str, str] | None = None,
        payload: str = "",
        wheel: str | None = None,
        commit: str = "",
    ) -> str:
        """A run: by cell, by test, what it raised; empty text for a pass."""
        run_id = f"run-{len(self.runs) + 1:03}"
        asked = replace(matrix(len(cells)), subject=Subject(name="lib", version=version))
        at = self.start + timedelta(days=len(self.runs) if days is None else days)
        new = replace(
            a_run(run_id),
            created_at=at,
            subject_version=version,
            payload_digest=payload if payload or commit else a_run(run_id).payload_digest,
            commit=Commit(sha=commit),
        )
        made = [(f"{run_id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
        self.stores.runs.create(new, RunSpec(asked, MANIFEST, wheel), made, key=None)
        for (cell_id, _), tests in zip(made, cells, strict=True):
            self._fill(cell_id, tests, done=done, packages=packages, at=at)
        if done:
            self.stores.runs.finish(run_id, Outcome.FAILED, at=at + timedelta(hours=1))
        self.runs.append(run_id)
        return run_id

    def _fill(
        self,
        cell_id: str,
        tests: Mapping[str, str],
        *,
        done: bool,
        packages: Mapping[str, str] | None,
        at: datetime,
    ) -> None:
        agent = Agent(self.stores, attempt(self.stores, cell_id))
        lines = [agent.line("environment", packages=packages)] if packages else []
        for name, raised in tests.items():
            if raised == RETRIED:
                lines.append(agent.line("test", "unit", record="rerun", nodeid=name))
            outcome = "failed" if raised and raised != RETRIED else "passed"
            lines.append(agent.test(name, outcome, longrepr=raised))
        assert agent.send(*lines)
        if done:
            self.stores.cells.enter(cell_id, CellState.RELEASING, at=at)
            self.stores.cells.conclude(cell_id, Cause(Outcome.FAILED, ""), at=at)
