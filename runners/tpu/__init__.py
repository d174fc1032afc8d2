"""The provider ``tpu``: Cloud TPU virtual machines, by queued resources or as plain nodes.

`TRAITS` are known without Google's libraries; creating a provider imports them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.domain.machine import ProviderTraits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.domain.document_problems import Problem
    from orchestrator.domain.matrix import Platform
    from runners.tpu.provider import TpuProvider

__all__ = ["TRAITS", "TpuProvider"]


def _check(platform: Platform) -> Iterable[Problem]:
    module = import_module("runners.tpu.platform_config")
    found: Iterable[Problem] = module.check_platform(platform)
    return found


TRAITS = ProviderTraits(
    name="tpu",
    keys=frozenset(
        {"accelerator_type", "runtime_version", "locations", "market", "connect", "bastion"}
    ),
    required=frozenset({"accelerator_type"}),
    rented=True,
    notice="gcp",
    caution=(
        "a TPU does not end by itself: it costs until somebody ends it. `seatrial bootstrap gcp` "
        "sets up a kill switch in your own account; without it have a second controller on another "
        "computer (docs/explanation/machine-lifecycle.md)"
    ),
    check=_check,
    extra="gcp",
    setting="gcp_project",
)


def __getattr__(name: str) -> object:
    # Importing the client library takes a second: only creating a provider imports it.
    if name == "TpuProvider":
        return import_module("runners.tpu.provider").TpuProvider
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
