"""Quotas: whether the machines of a matrix fit the limits of a provider at the same time."""

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
    """A quota of a provider."""

    provider: str
    scope: str
    """Where it applies: a region, a zone, or the project."""
    code: str
    """The code for requesting a higher limit, such as ``L-3819A6DF`` or ``NVIDIA_L4_GPUS``.

    Empty if the provider could not say which quotas a machine uses.
    """
    name: str
    """Name for people, such as ``G/VT spot``."""
    unit: str
    """``vCPU``, ``GPU``, ``chip``."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How much of a quota one machine uses."""

    quota: Quota
    amount: int


@dataclass(frozen=True, slots=True)
class QuotaLevel:
    """Limit and usage of a quota; None is unknown, and never enough."""

    limit: int | None
    used: int | None
    why_unknown: str = ""


@runtime_checkable
class Quotas(Protocol):
    """A provider whose quotas can be read."""

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return how much of each quota a machine at the place would use. Raises ProviderError."""
        ...

    def level(self, quota: Quota) -> QuotaLevel:
        """Return the limit and the usage of a quota; values that cannot be read are None."""
        ...


class QuotaStatus(StrEnum):
    """Whether a demand fits into a quota."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Headroom:
    """The demand of a matrix on one quota, compared with the free part of the quota."""

    quota: Quota
    needed: int
    level: QuotaLevel
    status: QuotaStatus

    @property
    def sentence(self) -> str:
        """The headroom in one sentence, with the limit to request if it is too low."""
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
    """Return the headroom of each quota for machines that run at the same time.

    Args:
        demands: The demands of every machine.
        levels: The level of every quota in the demands.
        at_once: Maximum number of machines at the same time; the largest demands are added up.
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
    """The image's id, as in the facts of machines; empty if it does not determine the machine."""
    simulated: bool = False
    """Whether the provider is an emulation."""
    name: str = ""
    """The publisher's name of the image; empty if there is none."""


@runtime_checkable
class Images(Protocol):
    """A provider that can name the image of a machine without booting it."""

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image of a machine that is launched at the place. Raises ProviderError."""
        ...
