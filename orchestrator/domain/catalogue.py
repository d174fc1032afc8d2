"""Catalogue of known platforms and devices, by name.

Only what was verified is listed; what a row lacks is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.domain.accelerators import NAMES, ImpliedHardware, architecture, id_promise
from orchestrator.domain.matrix import Accelerator, Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformResponse:
    """A provider with its platform keys."""

    provider: str
    rented: bool
    """Whether it costs money, so that a matrix with it needs ``limits.max_usd``."""
    keys: tuple[str, ...]
    required: tuple[str, ...]
    refused: str = ""
    """Why this controller runs no jobs there, and what to do instead; empty if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedPlatform:
    """A well-known platform."""

    platform: Platform
    service: str
    """The provider's name of the service: ``AWS EC2``."""
    device: str = ""
    """The accelerator's full name, as the vendor's tool prints it."""
    memory_mib: int | None = None
    """Memory of one accelerator, as the vendor's tool prints it."""
    memory_gb: int | None = None
    """The round figure that it is sold by."""
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
"""Providers by prefix of the id, longest first."""


def promised(platform: str) -> ImpliedHardware:
    """Return the hardware that an id implies: of a known platform, else by the words of the id."""
    if platform in PLATFORMS:
        return promised_v2(platform)
    return replace(id_promise(platform), provider=promised_v2(platform).provider)


def promised_v2(platform: str) -> ImpliedHardware:
    """Return what an id implied under version 2: a provider, and models by single words."""
    known = PLATFORMS.get(platform)
    if known is not None:
        return ImpliedHardware(known.device, provider=known.platform.provider)
    name = platform.lower()
    provider = next((told for begin, told in _PROVIDERS if name.startswith(begin)), "")
    words = name.replace("_", "-").split("-")
    return ImpliedHardware(
        next((NAMES[word] for word in words if word in NAMES), ""), provider=provider
    )
