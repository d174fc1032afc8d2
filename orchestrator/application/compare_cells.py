"""Pair the cells of two runs for a comparison, with the environment of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.cell import Cell, Run
from orchestrator.domain.environment_fingerprint import PACKAGE, traits, traits_around
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.node_ids import AliasState, resolve
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import Evidence
from orchestrator.store.run_comparison import CellEnvironment, Pair
from orchestrator.store.runs import RunsAsked
from orchestrator.store.stores import Stores


def compared_evidence(context: Context, base: str, head: str) -> Evidence:
    """Return the head's evidence with the base's. Raises RunMissingError."""
    now = context.clock.now()
    older = evidence_of(context.stores, base, at=now)
    newer = evidence_of(context.stores, head, at=now)
    product = context.stores.runs.spec(head).manifest.name
    return replace(newer, base=older, renamed=_renamed(context, product))


def _renamed(context: Context, product: str) -> Mapping[str, str]:
    """Return the newest confirmed name of each older test name."""
    told = context.stores.aliases.list(product=product, state=AliasState.CONFIRMED)
    step = {alias.old: alias.new for alias in told}
    return {old: resolve(old, step) for old in step}


_PLACE = (("image", ("image_name", "image_id")), ("instance type", ("instance_type",)))
STACK = frozenset({"torch", "runtime", "device driver", "device name", "device compute capability"})
"""Properties that affect the speed: if they differ, so may the speed, whatever the subject."""
_RANK = (
    "torch", "runtime", "device driver", "device name", "device compute capability", "devices",
    "image", "instance type", "python", "os",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CellPair:
    """A cell of the earlier run and its counterpart in the later run; one may be missing."""

    before: Cell | None
    after: Cell | None
    how: str = ""
    """The match of the cells: by ``name``, ``platform``, ``only cell`` or ``chosen``."""

    @property
    def name(self) -> str:
        """Return the cell's present name, or both names where they differ."""
        names = [cell.name for cell in (self.before, self.after) if cell is not None]
        return " → ".join(dict.fromkeys(names))

    @property
    def pair(self) -> Pair | None:
        """Return both ids; None if one is missing."""
        if self.before is None or self.after is None:
            return None
        return self.before.id, self.after.id


@dataclass(frozen=True, slots=True)
class EnvironmentProperty:
    """A property of the environment, with its values in both runs."""

    what: str
    before: str
    """Value in the earlier run; empty if it is unknown."""
    after: str
    cells: tuple[str, ...]
    """Cells with these values."""

    @property
    def is_known(self) -> bool:
        """Whether both values are known."""
        return bool(self.before and self.after)

    @property
    def differs(self) -> bool:
        """Whether both values are known and differ."""
        return self.is_known and self.before != self.after

    @property
    def is_package(self) -> bool:
        """Whether the property is the version of a package."""
        return self.what.startswith(PACKAGE)


def bases_of(stores: Stores, run: Run) -> tuple[Run | None, Run | None]:
    """Return the previous and the last passing run of the same matrix and subject, if any."""
    mine = RunsAsked(subject=run.subject_name, matrix=run.matrix_name)
    green = RunsAsked(subject=run.subject_name, matrix=run.matrix_name, outcome=Outcome.PASSED)
    found = (stores.runs.page(limit=1, before=run.id, filters=asked)[0] for asked in (mine, green))
    previous, passed = (runs[0] if runs else None for runs in found)
    return previous, passed


def pair_cells(
    stores: Stores, before: Sequence[Cell], after: Sequence[Cell]
) -> tuple[CellPair, ...]:
    """Pair cells by name, else by platform where that is unambiguous.

    The pairs are in the order of the newer run's cells; cells without counterpart come last. Two
    runs of one cell each are always paired.
    """
    ours = {cell.name: cell for cell in after}
    found = [CellPair(cell, ours[cell.name], "name") for cell in before if cell.name in ours]
    left = [cell for cell in before if cell.name not in ours]
    named = {facing.name for facing in found}
    rest = [cell for cell in after if cell.name not in named]
    if left and rest:
        plans = stores.cells.lives([cell.id for cell in (*left, *rest)])
        keys = {cell: _machine(life.plan) for cell, life in plans.items()}
        found += _by(lambda cell: keys.get(cell.id), left, rest)
    if not found and len(before) == len(after) == 1:
        found = [CellPair(before[0], after[0], "only cell")]
    taken = {cell.id for one in found for cell in (one.before, one.after) if cell is not None}
    found += [CellPair(None, cell) for cell in after if cell.id not in taken]
    found += [CellPair(cell, None) for cell in before if cell.id not in taken]
    return tuple(sorted(found, key=_position))


def _position(facing: CellPair) -> tuple[bool, int]:
    cell = facing.after or facing.before
    return facing.after is None, cell.position if cell is not None else 0


def _by(
    key: Callable[[Cell], Hashable], before: Sequence[Cell], after: Sequence[Cell]
) -> list[CellPair]:
    theirs, ours = _only(key, before), _only(key, after)
    return [CellPair(theirs[k], cell, "platform") for k, cell in ours.items() if k in theirs]


def _only(key: Callable[[Cell], Hashable], cells: Sequence[Cell]) -> dict[Hashable, Cell]:
    """Return the cells whose key is unique, by key; cells with the key None are left out."""
    keys = [key(cell) for cell in cells]
    pairs = zip(keys, cells, strict=True)
    return {k: cell for k, cell in pairs if k is not None and keys.count(k) == 1}


def _machine(plan: CellPlan) -> Hashable:
    platform, accelerator = plan.platform, plan.platform.accelerator
    if accelerator is not None:
        return accelerator.vendor, accelerator.name, plan.environment
    if platform.accelerator_type:
        return platform.accelerator_type, plan.environment
    return None


def traits_of(
    facing: Sequence[CellPair], surroundings: Mapping[str, CellEnvironment], subject: str
) -> tuple[EnvironmentProperty, ...]:
    """Return the properties of both environments: the stack first, then packages.

    `subject` is the name of a distribution that is left out.
    """
    cells: dict[tuple[str, str, str], list[str]] = {}
    for one in facing:
        if one.pair is None:
            continue
        old, new = (_all_traits(surroundings.get(cell), subject) for cell in one.pair)
        if not old or not new:
            continue
        for what in {**_always(), **new, **old}:
            key = what, old.get(what, ""), new.get(what, "")
            cells.setdefault(key, []).append(one.name)
    found = (EnvironmentProperty(*key, tuple(names)) for key, names in cells.items())
    return tuple(sorted(found, key=_order))


def silent_of(
    facing: Sequence[CellPair], surroundings: Mapping[str, CellEnvironment]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs with an unknown environment: (name, ``A``, ``B`` or ``A and B``)."""
    found = []
    for one in facing:
        if one.pair is not None:
            sides = zip("AB", one.pair, strict=True)
            silent = [side for side, cell in sides if not _all_traits(surroundings.get(cell))]
            if silent:
                found.append((one.name, " and ".join(silent)))
    return tuple(found)


def other_stack(traits: Iterable[EnvironmentProperty]) -> frozenset[str]:
    """Return the cells whose two runs had different stacks (device, driver, runtime, Python)."""
    return frozenset(
        cell for trait in traits if trait.differs and trait.what in STACK for cell in trait.cells
    )


def _always() -> dict[str, str]:
    """Return the properties that are shown even if they are unknown, without values."""
    return dict.fromkeys(("torch", "runtime", "device driver", "image"), "")


def _all_traits(surroundings: CellEnvironment | None, subject: str = "") -> dict[str, str]:
    """Return all properties by name; empty without an environment event."""
    if surroundings is None or not traits(surroundings.probed):
        return {}
    found = traits_around(surroundings.probed, subject)
    found.pop(f"{PACKAGE}torch", None)
    for what, keys in _PLACE:
        said = next((surroundings.facts[key] for key in keys if surroundings.facts.get(key)), "")
        if said:
            found[what] = said
    return found


def _order(trait: EnvironmentProperty) -> tuple[bool, int, str, str]:
    place = _RANK.index(trait.what) if trait.what in _RANK else len(_RANK)
    return trait.is_package, place, trait.what, trait.before
