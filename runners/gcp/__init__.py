"""The provider ``gcp``: virtual machines with GPUs of Google Compute Engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.domain.machine import ProviderTraits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.domain.document_problems import Problem
    from orchestrator.domain.matrix import Platform
    from runners.gcp.provider import GcpProvider

__all__ = ["TRAITS", "GcpProvider"]


def _check(platform: Platform) -> Iterable[Problem]:
    module = import_module("runners.gcp.platform_config")
    found: Iterable[Problem] = module.check_platform(platform)
    return found


TRAITS = ProviderTraits(
    name="gcp",
    keys=frozenset(
        {"instance_type", "locations", "market", "image", "connect", "bastion", "disk_gb"}
    ),
    connect=frozenset({"public", "private", "iap"}),
    rented=True,
    notice="gcp",
    metadata_guard=True,
    check=_check,
    extra="gcp",
    setting="gcp_project",
)


def __getattr__(name: str) -> object:
    # Importing the client library takes a second: only creating a provider imports it.
    if name == "GcpProvider":
        return import_module("runners.gcp.provider").GcpProvider
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
