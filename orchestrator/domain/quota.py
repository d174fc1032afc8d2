"""Quotas: whether all that a matrix wants at the same time fits what a provider lets us have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Platform


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit of a provider."""

    provider: str
    scope: str
    """A region, a zone, or the project's name where it holds everywhere."""
    code: str
    """What to ask more of: ``L-3819A6DF``, ``NVIDIA_L4_GPUS``."""
    name: str
    """For a person: ``G/VT spot``."""
    unit: str
    """``vCPU``, ``GPU``, ``chip``."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one machine takes of a quota."""

    quota: Quota
    amount: int


@dataclass(frozen=True, slots=True)
class QuotaLevel:
    """How full a quota is; None is unknown, never enough."""

    limit: int | None
    used: int | None
    why_unknown: str = ""


@runtime_checkable
class Quotas(Protocol):
    """A provider whose limits can be asked for."""

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """What a machine there takes of which quotas. Raises ProviderError."""
        ...

    def level(self, quota: Quota) -> QuotaLevel:
        """Limit and usage now; whatever cannot be read is unknown, with the reason."""
        ...


class QuotaStatus(StrEnum):
    """The answer to one quota."""

    OK = "ok"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Headroom:
    """All that a matrix takes of one quota at a time, against what is free."""

    quota: Quota
    needed: int
    level: QuotaLevel
    status: QuotaStatus

    @property
    def sentence(self) -> str:
        """For a person, with what to ask for."""
        quota, level = self.quota, self.level
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
    """Add up what machines take that may run at the same time, quota by quota.

    Args:
        demands: Of every machine, one by one.
        levels: Of every quota among them.
        at_once: So many machines run at a time; the largest demands are counted.
    """
    amounts: dict[Quota, list[int]] = {}
    for demand in demands:
        amounts.setdefault(demand.quota, []).append(demand.amount)
    found = []
    for quota, each in amounts.items():
        needed = sum(sorted(each, reverse=True)[:at_once])
        found.append(Headroom(quota, needed, levels[quota], _room(needed, levels[quota])))
    return tuple(found)


def _room(needed: int, level: QuotaLevel) -> QuotaStatus:
    if level.limit is None or level.used is None:
        return QuotaStatus.UNKNOWN
    return QuotaStatus.OK if level.limit - level.used >= needed else QuotaStatus.SHORT
