"""Catalogue of well-known platforms and their devices.

It contains only verified facts; an empty field is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.domain.accelerators import NAMES, ImpliedHardware, architecture, id_promise
from orchestrator.domain.matrix import Accelerator, Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformResponse:
    """A provider with the keys of its platforms."""

    provider: str
    rented: bool
    """Whether its machines cost money, so that a matrix needs ``limits.max_usd``."""
    keys: tuple[str, ...]
    required: tuple[str, ...]
    refused: str = ""
    """Why this controller cannot run jobs on it, and an alternative; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedPlatform:
    """A well-known platform."""

    platform: Platform
    service: str
    """The service's name at the provider, such as ``AWS EC2``."""
    device: str = ""
    """Full name of the accelerator, as the vendor's tool reports it."""
    memory_mib: int | None = None
    """Memory of one accelerator in MiB, as the vendor's tool reports it."""
    memory_gb: int | None = None
    """Memory of one accelerator in GB, as marketed."""
    compute_capability: str = ""
    vcpus: int | None = None

    @property
    def architecture(self) -> str:
        """Architecture of the platform's accelerator; empty if none is recorded."""
        return architecture(self.compute_capability)


_ROWS = (
    CataloguedPlatform(
        platform=Platform(id="local", provider="local"),
        service="this computer",
    ),
    CataloguedPlatform(
        platform=Platform(id="local-cpu", provider="local"),
        service="this computer",
    ),
    CataloguedPlatform(
        platform=Platform(
            id="aws-a10g",
            provider="aws",
            instance_type="g5.xlarge",
            accelerator=Accelerator(vendor="nvidia", name="A10G", compute_capability="8.6"),
        ),
        service="AWS EC2",
        device="NVIDIA A10G",
        memory_mib=23028,
        memory_gb=24,
        compute_capability="8.6",
        vcpus=4,
    ),
    CataloguedPlatform(
        platform=Platform(
            id="gcp-l4",
            provider="gcp",
            instance_type="g2-standard-4",
            accelerator=Accelerator(vendor="nvidia", name="L4", compute_capability="8.9"),
        ),
        service="GCP Compute Engine",
        device="NVIDIA L4",
        memory_mib=23034,
        memory_gb=24,
        compute_capability="8.9",
        vcpus=4,
    ),
    CataloguedPlatform(
        platform=Platform(
            id="gcp-tpu-v5e",
            provider="tpu",
            accelerator_type="v5litepod-1",
            runtime_version="v2-alpha-tpuv5-lite",
        ),
        service="GCP Cloud TPU",
        device="TPU v5e",
        memory_gb=16,
        vcpus=24,
    ),
    CataloguedPlatform(
        platform=Platform(
            id="aws-mi300x",
            provider="aws",
            accelerator=Accelerator(vendor="amd", name="MI300X"),
            optional=True,
        ),
        service="AWS EC2",
        device="AMD Instinct MI300X",
        memory_gb=192,
    ),
)

PLATFORMS: Mapping[str, CataloguedPlatform] = {row.platform.id: row for row in _ROWS}
"""Platforms by id."""


_PROVIDERS = (("aws-", "aws"), ("gcp-tpu-", "tpu"), ("gcp-", "gcp"))
"""Providers by the prefix of a platform's id, longest first."""


def promised(platform: str) -> ImpliedHardware:
    """Return the hardware that a platform's id implies.

    It comes from the catalogue, or from the words of an id that is not catalogued.
    """
    if platform in PLATFORMS:
        return promised_v2(platform)
    return replace(id_promise(platform), provider=promised_v2(platform).provider)


def promised_v2(platform: str) -> ImpliedHardware:
    """Return the hardware that an id implies by version 2 of the rules, for stored verdicts.

    Version 2 knows a provider, and models by single words.
    """
    known = PLATFORMS.get(platform)
    if known is not None:
        return ImpliedHardware(known.device, provider=known.platform.provider)
    name = platform.lower()
    provider = next((told for begin, told in _PROVIDERS if name.startswith(begin)), "")
    words = name.replace("_", "-").split("-")
    return ImpliedHardware(
        next((NAMES[word] for word in words if word in NAMES), ""), provider=provider
    )
