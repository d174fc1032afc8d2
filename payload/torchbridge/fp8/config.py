"""Settings of FP8 training."""

from __future__ import annotations

from dataclasses import dataclass

from torchbridge.fp8.formats import FP8Dtype
from torchbridge.fp8.linear import GRANULARITIES, LAYER_PATHS

FP8Format = FP8Dtype  # its name in training
SCALINGS = ("dynamic", "delayed")
AMAX_ALGORITHMS = ("max", "most_recent")


@dataclass(frozen=True, slots=True)
class FP8Config:
    """How linear layers are trained with float8 products.

    `scaling`: dynamic takes the scale of each tensor from the tensor itself; delayed from the
    largest numbers (`amax_compute_algo`: max or most_recent) of `amax_history_len` steps before,
    with `margin` binary orders of magnitude to spare. `granularity` is of dynamic scales.

    The loss scale starts at `initial_scale`, is multiplied by `growth_factor` after
    `growth_interval` good steps, and by `backoff_factor` when a gradient is not finite.

    `path` and `fast_accum` are NativeFP8Linear's.

    `use_te_linear` takes Transformer Engine's layers where that package and a CUDA device are.

    Raises:
        ValueError: a setting that cannot be.
    """

    forward_format: FP8Format = FP8Format.E4M3
    backward_format: FP8Format = FP8Format.E5M2
    scaling: str = "dynamic"
    granularity: str = "tensor"
    initial_scale: float = 32768.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    margin: int = 2
    use_te_linear: bool = True
    path: str = "auto"
    fast_accum: bool = True

    def __post_init__(self) -> None:
        wrong = [name for name, right in self._rules().items() if not right]
        if wrong:
            found = ", ".join(f"{name}={getattr(self, name)!r}" for name in wrong)
            raise ValueError(f"FP8Config cannot have {found}")

    def _rules(self) -> dict[str, bool]:
        """By setting: is it in its range?"""
        delayed = self.scaling == "delayed"
        return {
            "forward_format": self.forward_format in list(FP8Format),
            "backward_format": self.backward_format in list(FP8Format),
            "scaling": self.scaling in SCALINGS,
            "granularity": self.granularity in (("tensor",) if delayed else GRANULARITIES),
            "initial_scale": self.initial_scale > 0,
            "growth_factor": self.growth_factor > 1,
            "backoff_factor": 0 < self.backoff_factor < 1,
            "growth_interval": self.growth_interval > 0,
            "amax_history_len": self.amax_history_len > 0,
            "amax_compute_algo": self.amax_compute_algo in AMAX_ALGORITHMS,
            "margin": self.margin >= 0,
            "path": self.path in LAYER_PATHS,
        }
