"""Every test starts from the same random state, on the best device of the machine."""

from __future__ import annotations

import pytest
import torch

from torchbridge.device import describe, pick_device
from torchbridge.moe import MoEConfig


def pytest_report_header() -> str:
    """Say on what the numbers were made."""
    return f"device: {describe(pick_device())}"


@pytest.fixture(autouse=True)
def seed() -> int:
    """The seed that was just set."""
    torch.manual_seed(1234)
    return 1234


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tests run."""
    return pick_device()


@pytest.fixture
def config() -> MoEConfig:
    """Eight experts, two of them per token."""
    return MoEConfig(num_experts=8, top_k=2)


@pytest.fixture
def x(device) -> torch.Tensor:
    """[4, 32, 256] normal numbers."""
    return torch.randn(4, 32, 256, device=device)
