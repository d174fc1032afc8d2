"""What an export gives, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchbridge.export.metadata import OptimizationMetadata


@dataclass(frozen=True, slots=True)
class Verified:
    """One input that the re-loaded file was run on.

    `max_difference` is the largest |file - model| over the largest |model| of all outputs;
    `trouble` says what was wrong besides numbers: an exception, a shape, a dtype.
    """

    shapes: tuple[tuple[int, ...], ...]
    max_difference: float
    tolerance: float
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Is the file's answer the model's?"""
        return not self.trouble and self.max_difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A file that was written, re-loaded and compared. `seconds` are without the comparison."""

    path: Path
    format: str
    size_bytes: int
    seconds: float
    verified: tuple[Verified, ...]

    @property
    def max_difference(self) -> float:
        """The largest over all verified inputs."""
        return max(one.max_difference for one in self.verified)

    @property
    def inputs_verified(self) -> int:
        """How many inputs were compared."""
        return len(self.verified)

    @property
    def shapes_verified(self) -> int:
        """How many different shapes were among them."""
        return len({one.shapes for one in self.verified})


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was read back; called like the model. `metadata` is None in files of others."""

    format: str
    run: Callable[..., Any]
    metadata: OptimizationMetadata | None

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for positional tensors."""
        return self.run(*inputs)


class ExportMismatch(RuntimeError):
    """The re-loaded file does not compute what the model computes; nothing was left behind."""

    def __init__(self, file_format: str, verified: Sequence[Verified], advice: str) -> None:
        bad = [one for one in verified if not one.good]
        worst = max(bad, key=lambda one: (bool(one.trouble), one.max_difference))
        what = worst.trouble or f"difference {worst.max_difference:.1e} is over {worst.tolerance:g}"
        super().__init__(
            f"{file_format}: the re-loaded file differs from the model on {len(bad)} of"
            f" {len(verified)} inputs; worst for shapes {worst.shapes}: {what}. {advice}"
        )
        self.verified = tuple(verified)


class ExportUnavailable(RuntimeError):
    """This format cannot be written here: something is missing."""

    def __init__(self, file_format: str, missing: str, remedy: str) -> None:
        super().__init__(f"{file_format}: {missing}; {remedy}")
        self.missing = missing
