"""Clouds in memory with machines of several projects, and the emergency stop over them."""

from __future__ import annotations

from orchestrator.application.emergency_stop import EmergencyStop
from orchestrator.domain.machine import LaunchRequest, Place, ProviderTraits
from runners.fake import FakeCloud, FakeProvider, MemoryHostStore
from runners.provider_context import ProviderContext
from tests.platforms import as_platform

OURS = {"seatrial-project": "seatrial"}


class SignedInProvider(FakeProvider):
    """Has credentials, configured or of the computer itself."""

    configured = True

    def is_configured(self) -> bool:
        return self.configured


def rent(cloud: FakeCloud, token: str, **tags: str) -> str:
    """A machine that no ledger knows; its id."""
    return cloud.launch(LaunchRequest(token, Place("north"), as_platform({}), tags)).id


def stop_of(*clouds: FakeCloud, is_configured: bool = True) -> EmergencyStop:
    """The emergency stop of project ``seatrial`` over providers ``fake``, ``fake1`` ..."""
    names = [f"fake{number or ''}" for number in range(len(clouds))]
    providers = {
        name: SignedInProvider(ProviderContext(MemoryHostStore()), cloud)
        for name, cloud in zip(names, clouds, strict=True)
    }
    for provider in providers.values():
        provider.configured = is_configured
    traits = {name: ProviderTraits(name, frozenset()) for name in names}
    return EmergencyStop(providers.__getitem__, traits, "seatrial")
