"""Which builds of torch a matrix would run, by names of images that the clouds have."""

from __future__ import annotations

import pytest

from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.torch_build import cuda_refusal, has_no_nvidia, torch_build, torch_warning

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


@pytest.mark.parametrize(
    ("platform", "is_without"),
    [
        (Platform(id="tpu", provider="tpu", accelerator_type="v5litepod-1"), True),
        (Platform(id="a", provider="aws", accelerator=Accelerator(vendor="amd", name="M")), True),
        (Platform(id="l4", provider="gcp", accelerator=Accelerator(vendor="nvidia", name="L4")), 0),
        (Platform(id="here", provider="local"), False),
        (Platform(id="plain", provider="aws", instance_type="m7i.large"), False),  # it is not known
    ],
)
def test_a_platform_says_that_it_has_no_gpu_of_nvidia(platform: Platform, is_without: bool) -> None:
    assert has_no_nvidia(platform) == is_without


@pytest.mark.parametrize(
    ("packages", "told"),
    [
        (
            {"torch": "2.9.1", "nvidia-cublas-cu12": "12.8", "nvidia-nccl-cu12": "2.27"},
            "include CUDA (nvidia-cublas-cu12 12.8, nvidia-nccl-cu12 2.27), and tpu has no NVIDIA",
        ),
        ({"torch": "2.9.1+cu128"}, "include CUDA (torch 2.9.1+cu128), and tpu has no NVIDIA GPU"),
        ({"triton": "3.5"}, "include CUDA (triton 3.5), and tpu has no NVIDIA GPU"),
        ({f"nvidia-cu{n}": "1" for n in range(9)}, "nvidia-cu2 1 and 6 more), and tpu has no"),
        ({"torch": "2.9.1+cpu", "nvidia-ml-py": "13", "numpy": "2"}, ""),
    ],
)
def test_cuda_is_not_sent_to_a_machine_without_a_gpu_of_nvidia(
    packages: dict[str, str], told: str
) -> None:
    refusal = cuda_refusal(packages, "tpu")
    assert told in refusal
    assert bool(refusal) is bool(told)
    assert ("find_links" in refusal) is bool(told)
    assert ("or pin torch==2.9.1+cpu" in refusal) is (bool(told) and "torch" in packages)
