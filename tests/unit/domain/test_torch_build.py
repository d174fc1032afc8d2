"""Which builds of torch a matrix would run, by names of images that the clouds have."""

from __future__ import annotations

import pytest

from orchestrator.domain.attestation import Device
from orchestrator.domain.manifest import Environment
from orchestrator.domain.matrix import Accelerator, CellPlan, Platform
from orchestrator.domain.torch_build import cuda_refusal, cuda_warning, torch_build, torch_warning

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


TPU = Platform(id="tpu", provider="tpu", accelerator_type="v5litepod-1")
AMD = Platform(id="amd", provider="aws", accelerator=Accelerator(vendor="amd", name="MI300X"))
L4 = Platform(id="l4", provider="gcp", accelerator=Accelerator(vendor="nvidia", name="L4"))
CPU_PAGE = "https://download.pytorch.org/whl/cpu/torch/"


@pytest.mark.parametrize(
    ("platform", "pip", "find_links", "warned"),
    [
        (TPU, ("torch~=2.9.0", "torch_xla[tpu]~=2.9.0"), (), True),
        (AMD, ("pytest", "Torch"), (), True),
        (TPU, ("torch~=2.9.0",), (CPU_PAGE,), False),
        (TPU, ("torch==2.9.1+cpu",), (), False),
        (TPU, ("torch_xla[tpu]~=2.9.0", "torchvision", "torch-geometric"), (), False),
        (L4, ("torch~=2.9.0",), (), False),
        (Platform(id="here", provider="local"), ("torch",), (), False),
    ],
)
def test_cuda_for_a_machine_without_a_gpu_of_nvidia_is_told_before_it_is_rented(
    platform: Platform, pip: tuple[str, ...], find_links: tuple[str, ...], warned: bool
) -> None:
    cell = CellPlan(platform.id, platform, "tpu", ("job",))
    told = cuda_warning(cell, Environment(pip=pip, find_links=find_links))
    assert bool(told) is warned
    assert (CPU_PAGE in told) is (warned and platform is TPU)


def test_an_environment_that_installs_nothing_sends_nothing() -> None:
    assert cuda_warning(CellPlan("tpu", TPU, "image", ("job",)), Environment()) == ""
    assert cuda_warning(CellPlan("tpu", TPU, "gone", ("job",)), None) == ""


NVIDIA, TPU_CHIP = Device("nvidia", "NVIDIA L4"), Device("google", "TPU v5e")


@pytest.mark.parametrize(
    ("packages", "devices", "is_refused"),
    [
        (("torch", "nvidia-cublas-cu12", "nvidia-nccl-cu12"), (), True),
        (("nvidia-cudnn",), (TPU_CHIP,), True),
        (("nvidia-cublas-cu12",), (NVIDIA,), False),
        (("torch", "nvidia-ml-py", "numpy"), (), False),
    ],
)
def test_cuda_is_not_sent_to_a_machine_without_a_gpu_of_nvidia(
    packages: tuple[str, ...], devices: tuple[Device, ...], is_refused: bool
) -> None:
    told = cuda_refusal(dict.fromkeys(packages, "1"), devices)
    assert bool(told) is is_refused
    assert ("find_links" in told) is is_refused
