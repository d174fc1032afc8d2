"""Define a benchmark of two arms, and how their outputs must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

_LARGE = 2**24
_TAKEN = {"name", "samples", "unit", "direction", "device", "baseline", "cache", "clock"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One implementation of the work.

    `work` runs it once and returns its output. `setup` is called before every sample, untimed, to
    undo what the work changes. `compiled` tells that the first call compiles.
    """

    name: str
    work: Callable[[], object]
    compiled: bool = field(default=False, kw_only=True)
    setup: Callable[[], object] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether two outputs agree: `error` against `tolerance`, both in `unit`."""

    equal: bool
    error: float = 0.0
    tolerance: float = 0.0
    unit: str = "relative"


@dataclass(frozen=True, slots=True)
class Work:
    """Minimum cost of one call: FLOPs (a multiply-add is two) and bytes moved; 0 if unknown.

    `number` is the format of the factors, one of `torchbridge.peaks`: fp32, tf32, fp16, bf16, fp8.
    """

    flops: float = 0.0
    bytes: float = 0.0
    number: str = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A subject and a named baseline to be timed; ratios are baseline time over subject time.

    The benchmark fails if the whole interval of the ratio is below `threshold`. A missed `goal`, or
    a share of the baseline's peak memory above `memory_goal`, is only reported. `cold` evicts the
    device's caches before each sample. `rounds` inputs are compared: `inputs(n)` gives the n-th to
    both arms, n from 0, and 0 is timed; without it the arms always compute the same.
    """

    name: str
    subject: Arm
    baseline: Arm
    equal: Callable[[object, object], Equality]
    device: torch.device
    params: Mapping[str, str | int | float] = field(default_factory=dict)
    threshold: float | None = None
    goal: float | None = None
    memory_goal: float | None = None
    work: Work | None = None
    cold: bool = False
    inputs: Callable[[int], object] | None = None
    rounds: int = 3

    def __post_init__(self) -> None:
        """Raise ValueError for `params` with reserved names, and for no rounds."""
        if taken := sorted(_TAKEN & set(self.params)):
            raise ValueError(f"{self.name}: params cannot be called {', '.join(taken)}")
        if self.rounds < 1:
            raise ValueError(f"{self.name}: at least one round must be compared")


def close_to(tolerance: float) -> Callable[[object, object], Equality]:
    """Return a check that the largest difference is within `tolerance` of the largest magnitude.

    The check takes tensors or lists of them, subject first; the magnitude is the baseline's. NaN
    and infinity never agree.
    """

    def equal(subject: object, baseline: object) -> Equality:
        ours, theirs = _tensors(subject), _tensors(baseline)
        if [t.shape for t in ours] != [t.shape for t in theirs] or not ours:
            return Equality(False, float("inf"), tolerance)
        errors = [_error(a, b) for a, b in zip(ours, theirs, strict=True)]
        good = all(error <= tolerance for error in errors)  # NaN is not
        return Equality(good, max(errors, key=lambda e: float("inf") if e != e else e), tolerance)

    return equal


def identical(subject: object, baseline: object) -> Equality:
    """Check that all numbers are equal; the error counts those that differ."""
    ours, theirs = _tensors(subject), _tensors(baseline)
    if [t.shape for t in ours] != [t.shape for t in theirs] or not ours:
        return Equality(False, float("inf"), unit="numbers")
    apart = sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))
    return Equality(apart == 0, apart, unit="numbers")


def _tensors(output: object) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output.detach()]
    if isinstance(output, (tuple, list)):
        return [tensor for one in output for tensor in _tensors(one)]
    raise TypeError(f"tensors or lists of tensors can be compared, not {type(output).__name__}")


def _error(subject: Tensor, baseline: Tensor) -> float:
    wide, expected = _wide(subject), _wide(baseline.to(subject.device))
    if expected.numel() == 0:
        return 0.0
    scale = expected.abs().max().item()
    difference = (wide - expected).abs().max().item()
    return difference / scale if scale > 0 else difference


def _wide(tensor: Tensor) -> Tensor:
    """Convert to float64; large tensors that fit into float32 become float32, to save memory."""
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.float() if narrow and tensor.numel() > _LARGE else tensor.double()
