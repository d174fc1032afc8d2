"""Which builds of torch a matrix would run, by names of images that the clouds have."""

from __future__ import annotations

import pytest

from orchestrator.domain.torch_build import torch_build, torch_warning

AWS = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.13 (Ubuntu 26.04) 20261028"
GCP = "pytorch-2-9-cu129-ubuntu-2404-nvidia-580-v20260626"


@pytest.mark.parametrize(
    ("image", "requirements", "torch", "cuda"),
    [
        (AWS, (), "2.13", ""),
        (GCP, (), "2.9", "12.9"),
        (GCP, ("torch==2.7.1",), "2.9", "12.9"),  # the image's own is kept
        ("common-cu129-ubuntu-2404-nvidia-580", ("torch~=2.8.0",), "2.8", ""),
        ("", ("pytest>=8", "torch~=2.9.0", "torch_xla[tpu]~=2.9.0"), "2.9", ""),
        ("", ("torch>=2.7", "torchvision==0.20"), "", ""),
        ("my-image", (), "", ""),
    ],
)
def test_a_build_is_known_by_the_image_or_by_what_is_installed(
    image: str, requirements: tuple[str, ...], torch: str, cuda: str
) -> None:
    found = torch_build("cell", image, requirements)
    assert (found.torch, found.cuda) == (torch, cuda)


def test_different_builds_are_told_with_how_to_pin_one() -> None:
    a10g, l4 = torch_build("aws-a10g", AWS, ()), torch_build("gcp-l4", GCP, ())
    tpu = torch_build("tpu", "", ("torch~=2.9.0",))
    told = torch_warning([a10g, l4, tpu])
    assert told.startswith(
        f"the platforms would run different builds of torch: aws-a10g 2.13 ({AWS}), "
        f"gcp-l4 2.9 with CUDA 12.9 ({GCP}), tpu 2.9 (torch~=2.9.0); "
    )
    assert "`image:`" in told
    assert torch_warning([l4, tpu, torch_build("local", "", ())]) == ""
    other = torch_build("gcp-h100", "pytorch-2-9-cu128-ubuntu-2404-nvidia-580", ())
    assert torch_warning([l4, other]).startswith("the platforms would run different builds of CUDA")
