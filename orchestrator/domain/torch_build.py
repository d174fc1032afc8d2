"""The torch build of each platform of a matrix, as far as it is known before the launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.domain.attestation import Device
from orchestrator.domain.manifest import Environment
from orchestrator.domain.matrix import CellPlan

_TORCH_IN_IMAGE = re.compile(r"pytorch[ -](\d+)[.-](\d+)", re.IGNORECASE)
_CUDA_IN_IMAGE = re.compile(r"-cu(\d{2})(\d)\b")
_TORCH_IN_REQUIREMENT = re.compile(r"torch\s*(?:~=|==)\s*(\d+)\.(\d+)")
_TORCH = re.compile(r"torch(?![\w-])", re.IGNORECASE)
_PAGES = "https://download.pytorch.org/whl/"
_PIN = (
    "their results are not comparable. Name images with the same one by `image:` in the platforms,"
    " or pin it in an environment of payload.toml (`torch==2.9.*`) where the image has none"
)


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The torch build of a cell."""

    cell: str
    torch: str
    """``2.9``; empty if it is unknown."""
    cuda: str = ""
    """``12.9``; empty if it is unknown or absent."""
    source: str = ""
    """The image's name, or the requirement."""

    def __str__(self) -> str:
        cuda = f" with CUDA {self.cuda}" if self.cuda else ""
        return f"{self.cell} {self.torch}{cuda} ({self.source})"


def torch_build(cell: str, image: str, requirements: Iterable[str]) -> TorchBuild:
    """Return the build by the image's name, else by the environment's requirements.

    Args:
        cell: Its id.
        image: The name of what its machine boots; empty if it is not known. Its torch is kept.
        requirements: Of the cell's environment, as pip takes them.
    """
    named = _TORCH_IN_IMAGE.search(image)
    if named is not None:
        cuda = _CUDA_IN_IMAGE.search(image)
        return TorchBuild(
            cell, ".".join(named.groups()), ".".join(cuda.groups()) if cuda else "", image
        )
    for text in requirements:
        pinned = _TORCH_IN_REQUIREMENT.match(text)
        if pinned is not None:
            return TorchBuild(cell, ".".join(pinned.groups()), source=text)
    return TorchBuild(cell, "")


def cuda_warning(cell: CellPlan, environment: Environment | None) -> str:
    """Return a warning if a machine without an NVIDIA GPU would be sent CUDA; else empty.

    torch's Linux build on PyPI requires NVIDIA's libraries on every machine.
    """
    platform = cell.platform
    accelerator = platform.accelerator
    has_other = platform.accelerator_type is not None or (
        accelerator is not None and accelerator.vendor != "nvidia"
    )
    if environment is None or not has_other:
        return ""
    asked = [text for text in environment.pip if _TORCH.match(text) and "+" not in text]
    if not asked or any(_PAGES in link for link in environment.find_links):
        return ""
    is_tpu = accelerator is None or accelerator.vendor == "google"
    page = f"{_PAGES}cpu/torch/" if is_tpu else f"the page of its own build below {_PAGES}"
    return (
        f"{cell.id}: {asked[0]} of the environment {cell.environment!r} is PyPI's build for CUDA: "
        "4 GB are sent to a machine without an NVIDIA GPU while it costs; name in the "
        f"environment's find_links {page}"
    )


_CUDA_PACKAGE = re.compile(r"nvidia-(cu|nccl|nv)[\w-]*")


def cuda_refusal(packages: Mapping[str, str], devices: Iterable[Device]) -> str:
    """Return why packages are not sent to a rented machine; empty if they may be sent.

    Args:
        packages: Those that would be sent, by canonical name.
        devices: The machine's accelerators.
    """
    libraries = sorted(name for name in packages if _CUDA_PACKAGE.fullmatch(name))
    if not libraries or any(device.vendor == "nvidia" for device in devices):
        return ""
    more = f" and {len(libraries) - 1} more" if len(libraries) > 1 else ""
    return (
        f"the environment's packages include CUDA ({libraries[0]}{more}), and the machine has no "
        "NVIDIA GPU: they are not sent while it costs. Name torch's build for the machine in the "
        f"environment's find_links ({_PAGES}cpu/torch/ without a GPU)"
    )


def torch_warning(builds: Iterable[TorchBuild]) -> str:
    """Return a warning where platforms run different builds; else empty."""
    known = [build for build in builds if build.torch]
    differing = [
        name
        for name, values in (
            ("torch", {build.torch for build in known}),
            ("CUDA", {build.cuda for build in known} - {""}),
        )
        if len(values) > 1
    ]
    if not differing:
        return ""
    told = ", ".join(str(build) for build in known)
    return f"the platforms would run different builds of {' and '.join(differing)}: {told}; {_PIN}"
