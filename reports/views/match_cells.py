"""Which cells of two runs are the same platform."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from orchestrator.domain.run_record import CellRecord

Match = tuple[CellRecord, CellRecord, str]


def matches(base: Sequence[CellRecord], head: Sequence[CellRecord]) -> tuple[Match, ...]:
    """Pairs (base, head, how): by cell id, else by platform where that leaves no choice.

    Two runs of one cell each are always set against each other. The pairs come in the order of
    the head's cells.
    """
    found: list[Match] = []
    for how, key in (("cell id", _id), ("platform", _machine), ("platform", _accelerator)):
        theirs = _only([c for c in base if all(c is not old for old, _, _ in found)], key)
        ours = _only([c for c in head if all(c is not new for _, new, _ in found)], key)
        found += [(theirs[name], cell, how) for name, cell in ours.items() if name in theirs]
    if not found and len(base) == len(head) == 1:
        return ((base[0], head[0], "only cell"),)
    order = [cell.id for cell in head]
    return tuple(sorted(found, key=lambda match: order.index(match[1].id)))


def _only(
    cells: Sequence[CellRecord], key: Callable[[CellRecord], Hashable]
) -> dict[Hashable, CellRecord]:
    """Cells whose key is nobody else's; None is no key."""
    keys = [key(cell) for cell in cells]
    pairs = zip(keys, cells, strict=True)
    return {name: cell for name, cell in pairs if name is not None and keys.count(name) == 1}


def _id(cell: CellRecord) -> Hashable:
    return cell.id


def _machine(cell: CellRecord) -> Hashable:
    platform = cell.platform
    return platform.provider, platform.instance_type, platform.accelerator_type, _accelerator(cell)


def _accelerator(cell: CellRecord) -> Hashable:
    platform = cell.platform
    if platform.accelerator is not None:
        return platform.accelerator.vendor, platform.accelerator.name
    return platform.accelerator_type or None
