"""The torch builds of a matrix's platforms, as far as they are known before the launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.domain.matrix import Platform

_TORCH_IN_IMAGE = re.compile(r"pytorch[ -](\d+)[.-](\d+)", re.IGNORECASE)
_CUDA_IN_IMAGE = re.compile(r"-cu(\d{2})(\d)\b")
_TORCH_IN_REQUIREMENT = re.compile(r"torch\s*(?:~=|==)\s*(\d+)\.(\d+)")
_NAMED = 3
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
    """Version of torch, such as ``2.9``; empty if it is unknown."""
    cuda: str = ""
    """Version of CUDA, such as ``12.9``; empty if it is unknown or absent."""
    source: str = ""
    """The source of these facts: the image's name or the requirement."""

    def __str__(self) -> str:
        cuda = f" with CUDA {self.cuda}" if self.cuda else ""
        return f"{self.cell} {self.torch}{cuda} ({self.source})"


def torch_build(cell: str, image: str, requirements: Iterable[str]) -> TorchBuild:
    """Return the build by the image's name, or else by the environment's requirements.

    Args:
        cell: The cell's id.
        image: Name of the machine's image, whose torch is kept; empty if it is unknown.
        requirements: Requirements of the cell's environment, in pip's form.
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


_CUDA_PACKAGE = re.compile(r"nvidia-(cu|nccl|nv)[\w-]*|triton|pytorch-triton")


def has_no_nvidia(platform: Platform) -> bool:
    """Whether the platform requests another accelerator than an NVIDIA GPU."""
    other = platform.accelerator is not None and platform.accelerator.vendor != "nvidia"
    return other or platform.accelerator_type is not None


def cuda_refusal(packages: Mapping[str, str], where: str) -> str:
    """Return why packages with CUDA are not sent to a machine without an NVIDIA GPU.

    It is empty if no package needs CUDA. torch's Linux build on PyPI requires NVIDIA's
    libraries on every machine.

    Args:
        packages: Versions of the packages to send, by canonical name.
        where: Description of the machine, for a person.
    """
    cuda = [name for name in packages if _CUDA_PACKAGE.fullmatch(name)]
    cuda += [name for name in ("torch",) if "+cu" in packages.get(name, "")]
    if not cuda:
        return ""
    told = ", ".join(f"{name} {packages[name]}" for name in sorted(cuda)[:_NAMED])
    more = f" and {len(cuda) - _NAMED} more" if len(cuda) > _NAMED else ""
    version = packages.get("torch", "").partition("+")[0]
    pin = f", or pin torch=={version}+cpu" if version else ""
    return (
        f"the environment's packages include CUDA ({told}{more}), and {where} has no NVIDIA GPU: "
        "they are not sent while it costs. Name torch's build for the machine in the "
        f"environment's find_links ({_PAGES}cpu/torch/ without a GPU{pin})"
    )


def torch_warning(builds: Iterable[TorchBuild]) -> str:
    """Return a warning if platforms run different builds; otherwise empty."""
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
