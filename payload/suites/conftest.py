"""Fixtures of the suites: each test starts from the same seed, on the machine's best device."""

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
    """Return the line of pytest's header that names the device of the tests."""
    return f"device: {describe(pick_device())}"


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed torch before each test and return the seed."""
    torch.manual_seed(1234)
    return 1234


@pytest.fixture(autouse=True)
def whole_float32() -> Iterator[None]:
    """Disable TF32 during each test; the tolerances of float32 assume 24 significant bits."""
    with numbers.whole_float32():
        yield


@pytest.fixture
def in_float8(monkeypatch) -> None:
    """Make layers without a given path compute in float8, even if it is predicted to be slower."""
    monkeypatch.setattr("torchbridge.fp8.linear.DEFAULT_PATH", "auto")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Return the device of the tests: the machine's best."""
    return pick_device()


@pytest.fixture
def model(device) -> GPT2:
    """Return a small GPT-2 on the device, whose next token depends on all tokens before it."""
    return lively().to(device)


@pytest.fixture
def evidence(tmp_path, monkeypatch) -> Callable[[], list[dict]]:
    """Return a function that reads the evidence written so far, one dictionary per line."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv("SEATRIAL_EVENTS", str(path))
    return lambda: [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def config() -> MoEConfig:
    """Return a config with eight experts, of which each token uses two."""
    return MoEConfig(num_experts=8, top_k=2)


@pytest.fixture
def x(device) -> torch.Tensor:
    """Return normally distributed numbers [4, 32, 256]."""
    return torch.randn(4, 32, 256, device=device)


@pytest.fixture(autouse=True, scope="module")
def fresh_compiler():
    """Reset torch's compiler before each module.

    Compilations of other modules count towards the limit after which torch stays in eager mode.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
