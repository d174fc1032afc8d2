"""Write an export as a draft, verify the re-loaded draft, then move it into place."""

from __future__ import annotations

import importlib
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchbridge.export.inputs import Inputs, Plan
from torchbridge.export.metadata import OptimizationMetadata, create_metadata_from_model
from torchbridge.passes import evaluating

# largest difference over the largest number of the output
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@dataclass(frozen=True, slots=True)
class Verification:
    """Comparison of the re-loaded file with the model on one input.

    `max_difference` is the largest |file - model| over the largest |model| of all outputs;
    `trouble` describes an exception or a wrong shape or dtype.
    """

    shapes: tuple[tuple[int, ...], ...]
    max_difference: float
    tolerance: float
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Whether the file's outputs agree with the model's."""
        return not self.trouble and self.max_difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A verified export; `seconds` exclude the verification."""

    path: Path
    format: str
    size_bytes: int
    seconds: float
    verified: tuple[Verification, ...]

    @property
    def max_difference(self) -> float:
        """Largest difference over all verified inputs."""
        return max(one.max_difference for one in self.verified)

    @property
    def inputs_verified(self) -> int:
        """Number of inputs that were compared."""
        return len(self.verified)

    @property
    def shapes_verified(self) -> int:
        """Number of different shapes among them."""
        return len({one.shapes for one in self.verified})


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A re-loaded export, called like the model; `metadata` is None in files of other writers."""

    format: str
    run: Callable[..., Any]
    metadata: OptimizationMetadata | None

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for positional tensors."""
        return self.run(*inputs)


class ExportMismatch(RuntimeError):
    """The re-loaded file disagrees with the model; no file was left behind."""

    def __init__(self, file_format: str, verified: Sequence[Verification], advice: str) -> None:
        bad = [one for one in verified if not one.good]
        worst = max(bad, key=lambda one: (bool(one.trouble), one.max_difference))
        what = worst.trouble or f"difference {worst.max_difference:.1e} is over {worst.tolerance:g}"
        super().__init__(
            f"{file_format}: the re-loaded file differs from the model on {len(bad)} of"
            f" {len(verified)} inputs; worst for shapes {worst.shapes}: {what}. {advice}"
        )
        self.verified = tuple(verified)


class ExportUnavailable(RuntimeError):
    """The format cannot be written or read here, because something is missing."""

    def __init__(self, file_format: str, missing: str, remedy: str) -> None:
        super().__init__(f"{file_format}: {missing}; {remedy}")
        self.missing = missing


def leaves(output: Any) -> list[Tensor]:
    """Return the tensors of a nested output, in order.

    Raises:
        TypeError: the output holds something other than tensors in tuples, lists and dictionaries.
    """
    found = [leaf for leaf in tree_leaves(output) if leaf is not None]
    if odd := [type(leaf).__name__ for leaf in found if not isinstance(leaf, Tensor)]:
        raise TypeError(f"an output of type {odd[0]} cannot be compared")
    return found


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return max |actual - expected| / max |expected| in float64; for integers 0 or infinity.

    Equal infinities, and NaN in both, count as equal.
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
    """Return the model's own outputs for each input, in evaluation mode.

    Raises:
        TypeError: the outputs hold no tensors.
    """
    with evaluating(model), torch.no_grad():
        found = [[leaf.clone() for leaf in leaves(model(*_copies(one)))] for one in checks]
    if not all(found):
        raise TypeError(f"{type(model).__name__} gives no tensors: there is nothing to compare")
    return found


def verify(
    file_format: str,
    run: Callable[..., Any],
    checks: Sequence[Inputs],
    expected: Sequence[Sequence[Tensor]],
    *,
    tolerance: float | None = None,
    advice: str = "",
) -> tuple[Verification, ...]:
    """Compare the outputs of `run` with the expected ones on every check.

    `tolerance` is by default that of the output's dtype.

    Raises:
        ExportMismatch: `run` fails, or differs by more than `tolerance`, on one input or more.
    """
    verified = tuple(
        _compared(run, one, wanted, tolerance) for one, wanted in zip(checks, expected, strict=True)
    )
    if not all(one.good for one in verified):
        raise ExportMismatch(file_format, verified, advice)
    return verified


def _compared(
    run: Callable[..., Any], inputs: Inputs, expected: Sequence[Tensor], tolerance: float | None
) -> Verification:
    shapes = tuple(tuple(tensor.shape) for tensor in inputs)
    limits = [
        TOLERANCE.get(leaf.dtype, 0.0) if tolerance is None else tolerance for leaf in expected
    ]
    try:
        with torch.no_grad():
            actual = leaves(run(*_copies(inputs)))
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return Verification(shapes, math.inf, min(limits), text)
    kinds = [[(tuple(leaf.shape), leaf.dtype) for leaf in side] for side in (actual, expected)]
    if kinds[0] != kinds[1]:
        text = f"outputs {kinds[0]} instead of {kinds[1]}"
        return Verification(shapes, math.inf, min(limits), text)
    gaps = [difference(a, e) for a, e in zip(actual, expected, strict=True)]
    worst, limit = max(zip(gaps, limits, strict=True), key=lambda pair: pair[0] - pair[1])
    return Verification(shapes, worst, limit)


def _copies(inputs: Inputs) -> Inputs:
    """Copy the inputs, because a model may write into them."""
    return tuple(tensor.clone() for tensor in inputs)


def publish(
    file_format: str,
    path: str | Path,
    model: nn.Module,
    plan: Plan,
    *,
    write: Callable[[Path, str], None],
    load: Callable[[Path], LoadedFile],
    advice: str,
    tolerance: float | None = None,
    metadata: OptimizationMetadata | None = None,
) -> ExportResult:
    """Export `model` and replace `path` by the file only if it was verified.

    `write` gets a path and the metadata as JSON: the given ones, or those read from the model.

    Raises:
        ExportMismatch: the file disagrees with the model, or cannot be loaded.
    """
    path = Path(path)
    expected = answers(model, plan.checks)  # before anything can touch the model
    facts = metadata or create_metadata_from_model(
        model, plan.example, dynamic=plan.dynamic, file_format=file_format
    )
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        draft = Path(folder) / path.name
        start = time.perf_counter()
        with evaluating(model), torch.no_grad():
            write(draft, facts.to_json())
        seconds = time.perf_counter() - start
        run = _loaded(load, draft)
        verified = verify(
            file_format, run, plan.checks, expected, tolerance=tolerance, advice=advice
        )
        draft.replace(path)
    return ExportResult(path, file_format, path.stat().st_size, seconds, verified)


def _loaded(load: Callable[[Path], LoadedFile], draft: Path) -> Callable[..., Any]:
    """Return a function that runs the file; if it cannot be loaded, every call of it raises.

    Raises ExportMismatch and ExportUnavailable at once.
    """
    try:
        return load(draft)
    except (ExportMismatch, ExportUnavailable):
        raise
    except Exception as error:
        text = f"it cannot be loaded ({type(error).__name__}: {error})"

    def unloadable(*_inputs: Any) -> None:
        raise RuntimeError(text)

    return unloadable


def require(file_format: str, *modules: str) -> None:
    """Check that the packages of a format can be imported.

    Raises:
        ExportUnavailable: a package is missing; the message says how to install it.
    """
    missing = [name for name in modules if not _importable(name)]
    if missing:
        remedy = f"install them: pip install {' '.join(missing)}"
        raise ExportUnavailable(file_format, f"{', '.join(missing)} not installed", remedy)


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
