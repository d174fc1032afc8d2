"""Rows of the fault tables: how a fault is arranged, what must come of it, what was seen."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.cell import CellState
from runners.fake import FakeComputer
from tests.lab.fault_world import RUN, FaultWorld

Arrange = Callable[[FaultWorld], None]
BUSY = [{"check": "cloud_init", "state": "waiting", "detail": "running"}]
"""What a machine says of itself that is not done with its boot."""


@dataclass(slots=True)
class Seen:
    """One table, of one cloud."""

    title: str
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, fault: str, here: FaultWorld) -> None:
        """Note what became of a row."""
        cell = here.cell()
        calls = "; ".join(
            f"{name}: {_counted(here.answers([name]))}"
            for name in (*here.rig.creates, *here.rig.deletes)
            if here.answers([name])
        )
        outcome = f"{cell.outcome}: {cell.reason}".rstrip(": ")
        cost, left = f"{cell.cost_usd:.4f}", ", ".join(here.left()) or "nothing"
        self.rows.append((fault, calls, outcome, str(len(cell.attempts)), cost, left))

    def markdown(self) -> str:
        """The table."""
        head = ("fault", "calls", "outcome: reason", "attempts", "cost", "left")
        lines = [head, ("---",) * len(head), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"## {self.title}\n\n{body}\n"


def _counted(answers: list[str]) -> str:
    runs = ((answer, len(list(same))) for answer, same in groupby(answers))
    return ", ".join(answer if n == 1 else f"{answer} x{n}" for answer, n in runs)


@contextmanager
def a_table(title: str) -> Iterator[Seen]:
    """Collect the rows of one cloud; show them, and write them where SEATRIAL_FAULT_TABLE says."""
    seen = Seen(title)
    yield seen
    print(f"\n{seen.markdown()}")
    path = os.environ.get("SEATRIAL_FAULT_TABLE")
    if path and seen.rows:
        file = Path(path)
        before = file.read_text() if file.exists() else ""
        kept = [part for part in before.split("## ") if part and not part.startswith(title)]
        file.write_text("\n".join(f"## {part}".strip() + "\n" for part in kept) + seen.markdown())


def sealed(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that is run inside the seal only."""
    for mark in (
        pytest.mark.needs_root,
        pytest.mark.usefixtures("sealed"),
        pytest.mark.timeout(600),
    ):
        test = mark(test)
    return test


@dataclass(frozen=True, slots=True)
class Row:
    """One fault, and what must come of it."""

    fault: str
    arrange: Callable[[FaultWorld], None]
    creates: tuple[str, ...]
    """How each call that makes a machine is answered, in order."""
    log: tuple[str, ...]
    """The decision log."""
    outcome: str = "passed"
    reason: str = ""
    attempts: int = 1
    made: int = 1
    """Machines that ever existed."""
    said: str = ""
    """Words that must stand in the cell's detail."""


def check(row: Row, here: FaultWorld, seen: Seen) -> None:
    """Run the row and hold everything against it."""
    row.arrange(here)
    cell = here.go()
    seen.add(row.fault, here)
    assert (cell.outcome, cell.reason) == (row.outcome, row.reason), cell.detail
    assert row.said in cell.detail, cell.detail
    assert here.answers(here.rig.creates) == list(row.creates), here.log()
    assert here.log() == list(row.log), here.log()
    assert len(cell.attempts) == row.attempts
    assert cell.state is CellState.DONE
    assert len(here.machines.booted) == row.made
    assert here.cloud.faults.unused == 0
    check_nothing_left(here)
    here.check_money()
    assert cell.cost_usd == sum((lease.cost_usd for lease in cell.leases), Decimal(0))
    assert (cell.cost_usd > 0) == (row.made > 0)


def check_nothing_left(here: FaultWorld) -> None:
    """No machine, nothing that hangs on one; at most what all machines of the project share."""
    assert set(here.left()) <= here.rig.shared, f"left: {here.cloud.alive()}"
    assert here.machines.live() == (), f"left: {here.machines.live()}"
    tokens = Counter(lease.machine_id for lease in here.leases() if lease.machine_id)
    assert not [one for one, count in tokens.items() if count > 1]


def stopped(reason: str, *, attempts: int = 1) -> dict[str, Any]:
    """A cell that ends in an error, and never had a machine."""
    return {"outcome": "errored", "reason": reason, "attempts": attempts, "made": 0}


# how faults are arranged


def slow(boot_s: float = 0, **computer: object) -> Arrange:
    """Machines that give a test time in every state; the first one is as given here."""

    def prepare(one: FakeComputer) -> None:
        one.lines_per_look = 1
        for key, value in computer.items():
            setattr(one, key, value)
        computer.clear()

    def arrange(here: FaultWorld) -> None:
        here.machines.boot_s = boot_s
        here.prepare = prepare

    return arrange


def taken_in(state: CellState, arrange: Arrange) -> Arrange:
    def arranged(here: FaultWorld) -> None:
        arrange(here)
        here.once_in(state, FaultWorld.take_away)

    return arranged


def held_files(here: FaultWorld) -> None:
    here.holds_files = True


def skewed(minutes: float) -> Arrange:
    def arrange(here: FaultWorld) -> None:
        here.cloud.clock = lambda: here.clock.now() + timedelta(minutes=minutes)

    return arrange


def taken_always(here: FaultWorld) -> None:
    """Whatever runs is taken."""
    slow()(here)

    def at_tick(here: FaultWorld) -> None:
        if here.cell().state is CellState.RUNNING and here.machines.live():
            here.take_away()

    here.on_tick.append(at_tick)


def cancelled_unseen(here: FaultWorld) -> None:
    """The run is cancelled while its machine is shown to nobody, and nobody can end it."""
    here.cloud.invisible_for_looks = 8
    here.cloud.hides_from_changes = True

    def cancel(here: FaultWorld) -> None:
        here.on_tick.remove(cancel)
        here.database.stores.runs.request_cancel(RUN, at=here.clock.now())

    here.on_tick.append(cancel)
