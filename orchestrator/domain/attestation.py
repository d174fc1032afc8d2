"""Attestation: the machine that produced results, compared with the requested hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.domain.matrix import (
    Accelerator,
    ExpectedHardware,
    differences,
    hardware_sentence,
    is_named,
)


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator as the vendor's tool reports it."""

    vendor: str
    name: str
    uuid: str = ""
    compute_capability: str = ""
    driver: str = ""

    @property
    def label(self) -> str:
        """Vendor and name, such as ``nvidia NVIDIA L4``."""
        return f"{self.vendor} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Attestation:
    """Attestation of the machine that produced an attempt's results."""

    facts: Mapping[str, str]
    """Facts of the provider: instance id and type, zone, market, image id and name."""
    devices: tuple[Device, ...]
    torch: str
    """Version of torch in the jobs' environment; empty if it is unknown."""
    simulated: bool
    """Whether the provider is an emulation, so that no gate accepts these results."""
    mismatch: str = ""
    """How the devices differ from the requested ones; empty if they match."""


def devices_of(probed: Mapping[str, object]) -> tuple[Device, ...]:
    """Return the devices that the agent's probe found."""
    found = probed.get("devices")
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    return tuple(_device(one) for one in found if isinstance(one, Mapping))


def _device(one: Mapping[str, object]) -> Device:
    def text(key: str) -> str:
        value = one.get(key)
        return "" if value is None else str(value)

    return Device(
        text("vendor"), text("name"), text("uuid"), text("compute_capability"), text("driver")
    )


def mismatch(accelerator: Accelerator | None, devices: Sequence[Device], *, simulated: bool) -> str:
    """Describe how the devices differ from the requested ones; empty if they match.

    A simulated machine may report no device; the devices that it reports are compared.
    """
    if accelerator is None or (simulated and not devices):
        return ""
    mine = [device for device in devices if device.vendor == accelerator.vendor]
    found = ", ".join(d.label for d in devices) or "no accelerator"
    wanted = f"{accelerator.count} x {accelerator.vendor} {accelerator.name}"
    named = [device for device in mine if is_named(device.name, accelerator.name)]
    if len(named) != accelerator.count or len(mine) != accelerator.count:
        return f"asked for {wanted}, found {found}"
    if accelerator.compute_capability is None:
        return ""
    other = [d for d in named if d.compute_capability != accelerator.compute_capability]
    if other:
        capability = other[0].compute_capability or "unknown"
        return (
            f"asked for compute capability {accelerator.compute_capability}, "
            f"found {capability} ({other[0].name})"
        )
    return ""


def unexpected(
    wanted: ExpectedHardware | None,
    *,
    provider: str,
    instance: str,
    devices: Sequence[Device],
    system: str,
    simulated: bool,
) -> str:
    """Describe how a machine differs from the matrix's `expect`; empty if it matches.

    A simulated machine may report no device; the devices that it reports are compared.
    """
    if wanted is None:
        return ""
    if simulated and not devices:
        wanted = replace(wanted, accelerator="", system="")
    named = [device.label for device in devices]
    found = differences(wanted, provider=provider, instance=instance, devices=named, system=system)
    told = "; ".join(one.sentence for one in found)
    return f"the matrix expects a machine {hardware_sentence(wanted)}: {told}" if told else ""
