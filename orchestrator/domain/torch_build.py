"""The torch build of each platform of a matrix, as far as it is known before the launch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TORCH_IN_IMAGE = re.compile(r"pytorch[ -](\d+)[.-](\d+)", re.IGNORECASE)
_CUDA_IN_IMAGE = re.compile(r"-cu(\d{2})(\d)\b")
_TORCH_IN_REQUIREMENT = re.compile(r"torch\s*(?:~=|==)\s*(\d+)\.(\d+)")
_PIN = (
    "their results are not comparable. Name images with the same one by `image:` in the platforms,"
    " or pin it in an environment of payload.toml (`torch==2.9.*`) where the image has none"
)


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The torch build of a cell."""

    cell: str
    torch: str
    """``2.9``; empty where it is unknown."""
    cuda: str = ""
    """``12.9``; empty where it is unknown or absent."""
    source: str = ""
    """The image's name, or the requirement."""

    def __str__(self) -> str:
        cuda = f" with CUDA {self.cuda}" if self.cuda else ""
        return f"{self.cell} {self.torch}{cuda} ({self.source})"


def torch_build(cell: str, image: str, requirements: Iterable[str]) -> TorchBuild:
    """Return the build by the image's name, else by the environment's requirements.

    Args:
        cell: Its id.
        image: The name of what its machine boots; empty where it is not known. Its torch is kept.
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
