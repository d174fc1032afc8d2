"""The plan of a launch, and its sentences for pages and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from orchestrator.domain.grouping import grouped
from orchestrator.domain.machine import Place, ProviderTraits
from orchestrator.domain.matrix import GIGABYTE, CellPlan
from orchestrator.domain.quota import Headroom
from orchestrator.domain.units import most_usd, plural, price, size

INDEX_ADVICE = (
    "let the machine install from its own index (`index = true` in the environment's table of"
    " payload.toml: `[env.image]` in place of `[setup]`, or the `[env.NAME]` that it has)"
)
SHIPPED_LIMIT_BYTES = 3 * GIGABYTE
"""Default of `limits.max_shipped_gb`, in bytes."""
_NAMED = 4


def over_limit(size_bytes: int, limit_bytes: int) -> str:
    """Return why this upload to a machine is refused, with advice."""
    return (
        f"{size(size_bytes)} are more than limits.max_shipped_gb of {size(limit_bytes)}: they "
        "would be sent while the machine is billed; name a build without CUDA where the machine "
        f"has no GPU, raise the limit, or {INDEX_ADVICE}"
    )


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of a launch plan."""

    cell: CellPlan
    places: tuple[Place, ...]
    """Places in the order in which they are tried."""
    worst_usd: Decimal | None
    """Maximum cost of one attempt in US dollars, at the most expensive of the places.

    Rounded up as shown; None if no price is known, or if the cell may use a place without a
    known price.
    """
    note: str = ""
    """Why no machine is rented for it, such as the provider's message; empty otherwise."""
    image: str = ""
    """Name of the image at the first place; empty if it is unknown."""

    @property
    def is_offered(self) -> bool:
        """Whether the provider offers a machine for it; otherwise it costs nothing."""
        return not (self.note and self.worst_usd == 0)

    @property
    def is_launchable(self) -> bool:
        """Whether the cell can be launched now.

        A cell without an offer can be launched, too; it ends with the outcome
        `not_available`.
        """
        return not (self.note and self.is_offered)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Result of the check of one of the user's own hosts."""

    platform: str
    host: str
    """Address of the host, as ``user@address:port``."""
    failure: str = ""
    """Why no cell can run on the host; empty if cells can run."""
    pythons: tuple[str, ...] = ()
    """Interpreters on the host that jobs would use, with their versions."""
    devices: tuple[str, ...] = ()
    """Accelerators of the host."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """The upload to the machine of a cell, which is billed meanwhile."""

    cell: str
    payload_bytes: int
    """Bytes of the payload's archive."""
    wheel_bytes: int
    """Bytes of the subject's wheel; 0 without a wheel."""
    packages: tuple[str, ...]
    """Requirements of the environment; packages that the machine already has are not sent."""
    packages_bytes: int | None
    """Known bytes of the packages' wheels; None if none is known."""
    has_index: bool = False
    """Whether the machine may install the packages from its own index instead."""
    files: int = 0
    """Number of wheels of the packages."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Packages of unknown size or with unknown requirements, with the reason."""
    machine: str = ""
    """The Python that the packages are selected for: that of the last machine, or an assumed one.
    """
    image: str = ""
    """Name of the machine's image; empty if it is unknown."""
    refusal: str = ""
    """Why no machine is rented for this upload; empty if one is."""

    @property
    def sentence(self) -> str:
        """The upload in words: number of files, size, and source."""
        files = 1 + bool(self.wheel_bytes) + self.files
        known = self.payload_bytes + self.wheel_bytes + (self.packages_bytes or 0)
        parts = [f"payload {size(self.payload_bytes)}"]
        if self.wheel_bytes:
            parts.append(f"wheel {size(self.wheel_bytes)}")
        if self.files:
            packages = f"{plural(self.files, 'package')} {size(self.packages_bytes or 0)}"
            parts.append(f"{packages} ({_some(self.packages)})" if self.packages else packages)
        where = "or the packages from the machine's own index" if self.has_index else ""
        sent = f"{'at least ' if self.unknown else ''}{plural(files, 'file')}, {size(known)}"
        told = [
            f"{sent}: {', '.join(parts)}, from the controller",
            *filter(None, [where, self.machine and f"calculated for {self.machine}"]),
        ]
        if self.unknown:
            reason = next(iter(self.unknown.values()))
            told.append(f"unknown beyond that: {_some(list(self.unknown))} ({reason})")
        if self.image:
            told.append(f"all else is in the image {self.image}")
        return "; ".join(told)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + ("..." if names[_NAMED:] else "")


def shipments_in_words(shipments: Iterable[Shipment]) -> list[str]:
    """Return a sentence for each distinct upload, with the cells that get it."""
    cells = grouped((shipment.sentence, shipment.cell) for shipment in shipments)
    return [f"sent to {', '.join(names)}: {sentence}" for sentence, names in cells.items()]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a launch of a matrix would do, with its maximum cost; made before the launch."""

    payload: str
    """Digest of the payload's archive."""
    max_usd: Decimal | None
    """Cost limit of the matrix in US dollars; None without a limit."""
    cells: tuple[PlannedCell, ...]
    headroom: tuple[Headroom, ...] = ()
    """Demand of all machines on each quota, at the first place of each cell."""
    warnings: tuple[str, ...] = ()
    """Warnings for a person to read before the launch."""
    hosts: tuple[HostCheck, ...] = ()
    """Checks of the user's own hosts, if they were requested."""
    shipments: tuple[Shipment, ...] = ()
    """The uploads to the machines of the cells."""

    @property
    def worst_usd(self) -> Decimal | None:
        """Maximum cost of one attempt of every cell, in US dollars; None if a price is unknown."""
        total = Decimal(0)
        for cell in self.cells:
            if cell.worst_usd is None:
                return None
            total += cell.worst_usd
        return total

    @property
    def known_usd(self) -> Decimal:
        """Known part of the cost of one attempt of every cell, in US dollars."""
        return sum((cell.worst_usd for cell in self.cells if cell.worst_usd), Decimal(0))

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """Return the cells that cost money, with those of unknown providers."""

        def is_rented(provider: str) -> bool:
            return provider not in traits or traits[provider].rented

        return [c for c in self.cells if c.worst_usd or is_rented(c.cell.platform.provider)]


def totals(cells: int, jobs: int, worst_usd: Decimal | None, max_usd: Decimal | None) -> str:
    """Return the number of cells and jobs, and the maximum cost.

    For example ``5 cells, 25 jobs, at most $4.02 an attempt (limit $12.00)``. A `worst_usd` of
    None is an unknown cost.
    """
    limit = f" (limit {price(max_usd)})" if max_usd is not None else ""
    cost = "free" if worst_usd == 0 else f"{cost_of_attempt(worst_usd)}{limit}"
    return f"{plural(cells, 'cell')}, {plural(jobs, 'job')}, {cost}"


def cost_of_attempt(worst_usd: Decimal | None) -> str:
    """Return ``at most $4.02 an attempt``, or ``at an unknown cost`` for None."""
    return (
        "at an unknown cost" if worst_usd is None else f"at most {most_usd(worst_usd)} an attempt"
    )


def limit_warning(known_usd: Decimal, max_usd: Decimal | None) -> str:
    """Return a warning if `limits.max_usd` is too low for one attempt of every cell.

    The warning is empty otherwise.
    """
    if max_usd is None or known_usd <= max_usd:
        return ""
    return (
        f"limits.max_usd is {price(max_usd)}, but one attempt of every cell may cost"
        f" {most_usd(known_usd)}: cells that exceed the rest of the budget get no machine"
    )


def cautions(providers: Iterable[str], traits: Mapping[str, ProviderTraits]) -> list[str]:
    """Return the cautions of the given providers, one line for each provider that has one."""
    named = sorted({name for name in providers if name in traits and traits[name].caution})
    return [f"{name}: {traits[name].caution}" for name in named]


def free_of(limit: int | None, used: int | None) -> str:
    """Return the free part of a quota: ``4 of 16``, or ``unknown``."""
    if limit is None or used is None:
        return "unknown"
    return f"{max(0, limit - used)} of {limit}"


def hourly(total_usd: Decimal | None) -> str:
    """Return the hourly price in words: ``$1.006/h``, ``free`` or ``price unknown``."""
    if total_usd is None:
        return "price unknown"
    return f"{price(total_usd)}/h" if total_usd else "free"
