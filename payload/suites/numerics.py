"""Tolerances, requirements of tests, and a clock that tests set. Errors are relative to the
largest expected number.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchbridge.device import pick_device
from torchbridge.hardware import probe

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def double(x: Tensor) -> Tensor:
    """Return a detached copy of x as float64 on the CPU."""
    return x.detach().cpu().double()


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest expected magnitude, in float64 on the CPU."""
    actual, expected = double(actual), double(expected)
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return ((actual - expected).abs().max() / scale).item()


def rms_error(actual: Tensor, expected: Tensor) -> float:
    """Return the root of the mean squared difference, relative to that of the expected numbers."""
    actual, expected = double(actual), double(expected)
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    return ((actual - expected).square().mean() / expected.square().mean()).sqrt().item()


def assert_close(actual: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
    """Check that the relative error is within `tolerance`, by default that of the actual dtype."""
    limit = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    error = relative_error(actual, expected)
    assert error <= limit, f"relative error {error:.3e} is over {limit:.1e}"


class Clock:
    """A clock of seconds that advances only by `work` or by setting `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Callable[[], None]:
        """Return a function that advances the clock by the next of `seconds`; the last repeats."""
        left = list(seconds)

        def spend() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return spend


def needs_module(*names: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test if one of the packages is missing, and names it."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed")


def needs_cuda(capability: tuple[int, int] = (0, 0)) -> pytest.MarkDecorator:
    """Return a mark that skips a test without an NVIDIA device of at least this capability."""
    wanted = "a CUDA device" if capability == (0, 0) else f"sm_{capability[0]}{capability[1]}"
    hardware = probe(pick_device())
    if hardware.vendor != "nvidia" or hardware.capability is None:
        return pytest.mark.skipif(True, reason=f"needs {wanted}; this is {hardware.vendor}")
    lacking = hardware.capability < capability
    return pytest.mark.skipif(lacking, reason=f"needs {wanted}; this is {hardware.target}")


def needs_vendor(vendor: str, what: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test on other vendors' hardware; `what` names the requirement."""
    found = probe(pick_device()).vendor
    return pytest.mark.skipif(found != vendor, reason=f"needs {what}; this is {found}")
