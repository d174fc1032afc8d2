"""Quotas: whether the machines of a matrix fit the provider's limits at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from orchestrator.domain.grouping import grouped
from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Platform


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of a provider."""

    provider: str
    scope: str
    """A region, a zone, or the project's name."""
    code: str
    """The code for a request of more: ``L-3819A6DF``, ``NVIDIA_L4_GPUS``.

    Empty if the provider could not say which quotas a machine uses.
    """
    name: str
    """Display name: ``G/VT spot``."""
    unit: str
    """``vCPU``, ``GPU``, ``chip``."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One machine's use of a quota."""

    quota: Quota
    amount: int


@dataclass(frozen=True, slots=True)
class QuotaLevel:
    """Limit and usage of a quota; None is unknown, which is never enough."""

    limit: int | None
    used: int | None
    why_unknown: str = ""


@runtime_checkable
class Quotas(Protocol):
    """A provider whose quotas can be read."""

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return the quotas that a machine would use. Raises ProviderError."""
        ...

    def level(self, quota: Quota) -> QuotaLevel:
        """Return present limit and usage; unreadable values are unknown, with the reason."""
        ...


class QuotaStatus(StrEnum):
    """Whether a demand fits a quota."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Headroom:
    """A matrix's demand on one quota, compared with what is free."""

    quota: Quota
    needed: int
    level: QuotaLevel
    status: QuotaStatus

    @property
    def sentence(self) -> str:
        """Describe the headroom, with what to request."""
        quota, level = self.quota, self.level
        if not quota.code:
            return f"quotas in {quota.scope} cannot be read: {level.why_unknown}"
        need = f"needs {self.needed} {quota.unit} of {quota.name} in {quota.scope}"
        if level.limit is None or level.used is None:
            return f"{need}, unknown how much is free: {level.why_unknown or 'it was not told'}"
        free = max(0, level.limit - level.used)
        if self.status is QuotaStatus.OK:
            return f"{need}, {free} free"
        return f"{need}, {free} free; ask {quota.code} for >= {level.used + self.needed}"


def headroom(
    demands: Iterable[Demand], levels: Mapping[Quota, QuotaLevel], *, at_once: int
) -> tuple[Headroom, ...]:
    """Add up concurrent demands by quota.

    Args:
        demands: Of every machine, one by one.
        levels: Of every quota among them.
        at_once: So many machines run at a time; the largest demands are counted.
    """
    amounts = grouped((demand.quota, demand.amount) for demand in demands)
    found = []
    for quota, each in amounts.items():
        needed = sum(sorted(each, reverse=True)[:at_once])
        found.append(Headroom(quota, needed, levels[quota], _room(needed, levels[quota])))
    return tuple(found)


def _room(needed: int, level: QuotaLevel) -> QuotaStatus:
    if level.limit is None or level.used is None:
        return QuotaStatus.UNKNOWN
    return QuotaStatus.OK if level.limit - level.used >= needed else QuotaStatus.SHORT


@dataclass(frozen=True, slots=True)
class BootImage:
    """The image that a provider would boot now."""

    id: str
    """Image id as in the facts of machines; empty if it does not determine the machine."""
    simulated: bool = False
    """Whether the provider is an emulation."""
    name: str = ""
    """The publisher's name; empty without one."""


@runtime_checkable
class Images(Protocol):
    """A provider that knows its boot image without booting it."""

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image for a launch there. Raises ProviderError."""
        ...
