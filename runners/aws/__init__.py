"""The provider ``aws``: instances of Amazon EC2, rented for one attempt each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.domain.machine import ProviderTraits

if TYPE_CHECKING:
    from runners.aws.provider import AwsProvider

__all__ = ["TRAITS", "AwsProvider"]

TRAITS = ProviderTraits(
    name="aws",
    keys=frozenset({"instance_type", "locations", "market", "image", "connect", "disk_gb"}),
    rented=True,
    notice="aws",
)


def __getattr__(name: str) -> object:
    # The SDK takes a while to load, and most commands only want to know the traits.
    if name == "AwsProvider":
        return import_module("runners.aws.provider").AwsProvider
    raise AttributeError(name)
