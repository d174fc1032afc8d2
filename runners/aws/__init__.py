"""The provider ``aws``: instances of Amazon EC2, rented for one attempt each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.domain.machine import ProviderTraits
from orchestrator.extras import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.domain.document_problems import Problem
    from orchestrator.domain.matrix import Platform
    from runners.aws.provider import AwsProvider

__all__ = ["TRAITS", "AwsProvider"]


def _check(platform: Platform) -> Iterable[Problem]:
    """Return the platform's problems; none if the provider's libraries are not installed."""
    if not is_installed(TRAITS.extra):
        return ()
    found: Iterable[Problem] = import_module("runners.aws.platform_config").check_platform(platform)
    return found


TRAITS = ProviderTraits(
    name="aws",
    keys=frozenset(
        {"instance_type", "locations", "market", "image", "connect", "bastion", "disk_gb"}
    ),
    connect=frozenset({"public", "private", "ssm"}),
    rented=True,
    notice="aws",
    metadata_guard=True,
    check=_check,
    extra="aws",
)


def __getattr__(name: str) -> object:
    # The SDK takes a while to load, and most commands only want to know the traits.
    if name == "AwsProvider":
        return import_module("runners.aws.provider").AwsProvider
    raise AttributeError(name)
