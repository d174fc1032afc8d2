"""Every test starts from the same random state, on the best device of the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from suites.gpt2_reference import lively
from torchbridge import numbers
from torchbridge.device import describe, pick_device
from torchbridge.llm import GPT2
from torchbridge.moe import MoEConfig

pytest.register_assert_rewrite("suites.numerics", "suites.vendor_rules")


def pytest_report_header() -> str:
    """Say on what the numbers were made."""
    return f"device: {describe(pick_device())}"


@pytest.fixture(autouse=True)
def seed() -> int:
    """The seed that was just set."""
    torch.manual_seed(1234)
    return 1234


@pytest.fixture(autouse=True)
def whole_float32() -> Iterator[None]:
    """No TF32, whatever the image says: float32's tolerances are those of 24 bits."""
    with numbers.whole_float32():
        yield


@pytest.fixture
def in_float8(monkeypatch) -> None:
    """Layers that are not told compute in float8, also where it is predicted to be slower."""
    monkeypatch.setattr("torchbridge.fp8.linear.DEFAULT_PATH", "auto")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tests run."""
    return pick_device()


@pytest.fixture
def model(device) -> GPT2:
    """A small GPT-2 whose tokens depend on all that came before."""
    return lively().to(device)


@pytest.fixture
def evidence(tmp_path, monkeypatch) -> Callable[[], list[dict]]:
    """The evidence so far, line by line."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv("SEATRIAL_EVENTS", str(path))
    return lambda: [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def config() -> MoEConfig:
    """Eight experts, two of them per token."""
    return MoEConfig(num_experts=8, top_k=2)


@pytest.fixture
def x(device) -> torch.Tensor:
    """[4, 32, 256] normal numbers."""
    return torch.randn(4, 32, 256, device=device)


@pytest.fixture(autouse=True, scope="module")
def fresh_compiler():
    """What other files compiled counts towards the limit after which torch stays in eager mode."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
