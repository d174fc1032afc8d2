"""One cell as one straight line of idempotent steps; it knows no engine.

A flow that owns a machine has no `finally`: tearing down is the step after the attempt, whatever
the attempt came to, and cancelling is a row that every look reads.
"""

from __future__ import annotations

from functools import partial

from orchestrator.application.cell import (
    booting,
    collecting,
    finishing,
    placing,
    preparing,
    queueing,
    releasing,
    running,
)
from orchestrator.application.cell.world import GO, World
from orchestrator.application.ports.engine import Durable


async def run_cell(world: World, do: Durable, cell_id: str) -> None:
    """Try the cell until an attempt of it stands, give every machine back, tell the run."""
    while True:
        admit = partial(queueing.look_admitted, world)
        attempt = await do.until("admit", admit, cell_id, every_s=0.5)
        if not isinstance(attempt, str):
            break
        try:
            await _work(world, do, attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine goes home
            blame = partial(releasing.blame_bug, world)
            await do.once("blame", blame, attempt, f"{type(error).__name__}: {error}")
        await do.until("release", partial(releasing.look_released, world), attempt, every_s=0.5)
        await do.until("close", partial(finishing.look_closed, world), attempt, every_s=1.0)
    await do.until("finish", partial(finishing.look_finished, world), cell_id, every_s=1.0)


async def _work(world: World, do: Durable, attempt: str) -> None:
    """Place, boot, prepare, run; from there on, what there is is always collected."""
    if await do.until("place", partial(placing.look_placed, world), attempt, every_s=1.0) != GO:
        return
    if await do.until("boot", partial(booting.look_booted, world), attempt, every_s=1.0) != GO:
        return
    prepare = partial(preparing.look_prepared, world)
    if await do.until("prepare", prepare, attempt, every_s=2.0) != GO:
        return
    await do.until("watch", partial(running.look_watched, world), attempt, every_s=0.5)
    await do.until("collect", partial(collecting.look_collected, world), attempt, every_s=0.5)
