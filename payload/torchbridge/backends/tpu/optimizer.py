"""The TPU's levels, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from torchbridge.backends.backend import OptimizationResult, Optimizer
from torchbridge.backends.tpu.backend import TPUBackend
from torchbridge.backends.tpu.exceptions import TPUOptimizationError
from torchbridge.backends.tpu.xla import XLA
from torchbridge.config import Config


@dataclass(frozen=True, slots=True)
class OptimizerStats:
    """Models optimised per level, and how often each pass was applied."""

    levels: dict[str, int]
    applied: dict[str, int]


class TPUOptimizer(Optimizer):
    """Applies a level to a model. With `strict_validation` every pass of it must be applied."""

    def __init__(self, config: Config | None = None, *, xla: XLA | None = None) -> None:
        self.backend = TPUBackend(config, xla=xla)
        self._levels: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()

    def optimize(
        self,
        model: nn.Module,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        *,
        training: bool = False,
        measure_s: float = 0.0,
    ) -> OptimizationResult:
        """As every optimizer's.

        Raises:
            TypeError: the model is no module.
            TPUOptimizationError: `strict_validation`, and compiling was refused.
        """
        options = {"training": training, "measure_s": measure_s}
        result = super().optimize(model, level, sample_inputs, **options)
        refused = [r.reason for r in result.passes if r.name == "compile" and not r.applied]
        if self.backend.settings.strict_validation and refused and not training:
            raise TPUOptimizationError(f"not compiled: {refused[0]}")
        self._levels[result.optimization_level] += 1
        self._applied.update(result.optimizations_applied)
        return result

    @property
    def stats(self) -> OptimizerStats:
        """So far."""
        return OptimizerStats(dict(self._levels), dict(self._applied))
