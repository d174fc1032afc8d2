"""Does a re-loaded file compute what the model computes? Asked of several inputs and shapes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Inputs
from torchbridge.export.result import ExportMismatch, Verified

# largest difference over the largest number of the output
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients; every module's own mode comes back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def leaves(output: Any) -> list[Tensor]:
    """The tensors of a nested output, in order.

    Raises:
        TypeError: something else than tensors in tuples, lists and mappings.
    """
    if isinstance(output, Tensor):
        return [output]
    if output is None:
        return []
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return [leaf for part in output for leaf in leaves(part)]
    raise TypeError(f"an output of type {type(output).__name__} cannot be compared")


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest |actual - expected| over the largest |expected|, in float64; whole numbers: 0 or inf.

    NaN and infinities count as equal where both have them.
    """
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual.cpu(), expected.cpu()) else math.inf
    actual, expected = actual.cpu().double(), expected.cpu().double()
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    gap = torch.where(same, 0.0, (actual - expected).abs()).max().item()
    scale = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    return gap / scale if scale > 0 and math.isfinite(gap) else math.inf


def answers(model: nn.Module, checks: Sequence[Inputs]) -> list[list[Tensor]]:
    """What the model itself says to each input, in eval mode.

    Raises:
        TypeError: it says nothing that can be compared.
    """
    with evaluating(model):
        told = [[leaf.clone() for leaf in leaves(model(*_copies(one)))] for one in checks]
    if not all(told):
        raise TypeError(f"{type(model).__name__} gives no tensors: there is nothing to compare")
    return told


def verify(
    file_format: str,
    run: Callable[..., Any],
    checks: Sequence[Inputs],
    expected: Sequence[Sequence[Tensor]],
    *,
    tolerance: float | None = None,
    advice: str = "",
) -> tuple[Verified, ...]:
    """Compare `run` with the expected answers on every check.

    Raises:
        ExportMismatch: on one input or more it differs by more than `tolerance` (by default that
            of the output's dtype), or cannot be run.
    """
    verified = tuple(
        _compared(run, one, wanted, tolerance) for one, wanted in zip(checks, expected, strict=True)
    )
    if not all(one.good for one in verified):
        raise ExportMismatch(file_format, verified, advice)
    return verified


def _compared(
    run: Callable[..., Any], inputs: Inputs, expected: Sequence[Tensor], tolerance: float | None
) -> Verified:
    shapes = tuple(tuple(tensor.shape) for tensor in inputs)
    limits = [
        TOLERANCE.get(leaf.dtype, 0.0) if tolerance is None else tolerance for leaf in expected
    ]
    try:
        with torch.no_grad():
            actual = leaves(run(*_copies(inputs)))
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return Verified(shapes, math.inf, min(limits), text)
    kinds = [[(tuple(leaf.shape), leaf.dtype) for leaf in side] for side in (actual, expected)]
    if kinds[0] != kinds[1]:
        text = f"outputs {kinds[0]} instead of {kinds[1]}"
        return Verified(shapes, math.inf, min(limits), text)
    gaps = [difference(a, e) for a, e in zip(actual, expected, strict=True)]
    worst, limit = max(zip(gaps, limits, strict=True), key=lambda pair: pair[0] - pair[1])
    return Verified(shapes, worst, limit)


def _copies(inputs: Inputs) -> Inputs:
    """A model may write into its inputs."""
    return tuple(tensor.clone() for tensor in inputs)
