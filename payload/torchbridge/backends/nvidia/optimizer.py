"""The levels by their own names, and advice."""

from __future__ import annotations

from torch import nn

from torchbridge.backends.backend import Optimizer
from torchbridge.backends.nvidia.backend import NVIDIABackend
from torchbridge.backends.optimise import CONVOLUTIONS, NORMS


class NVIDIAOptimizer(Optimizer):
    """`optimize(model, level)` applies conservative, balanced or aggressive to the model itself."""

    backend_class = NVIDIABackend

    def get_optimization_recommendations(self, model: nn.Module) -> list[str]:
        """What would pay for this model on this hardware, and by which level or class."""
        modules, hardware = list(model.modules()), self.backend.hardware
        has = {
            "conv": any(isinstance(m, CONVOLUTIONS) for m in modules),
            "norm": any(isinstance(m, NORMS) for m in modules),
            "attention": any(isinstance(m, nn.MultiheadAttention) for m in modules),
            "linear": any(isinstance(m, nn.Linear) for m in modules),
        }
        advice = {
            "balanced: fold batch norms into convolutions": has["conv"] and has["norm"],
            "balanced: channels-last for convolutions": has["conv"],
            "balanced: fused attention": has["attention"],
            "aggressive: bfloat16 on tensor cores": hardware.has("bf16"),
            "aggressive: float16 on tensor cores": self._only_float16,
            "aggressive: torch.compile with sample inputs": True,
            "FP8Compiler: linear layers in FP8": has["linear"] and self.backend.supports_fp8,
        }
        return [text for text, holds in advice.items() if holds]

    @property
    def _only_float16(self) -> bool:
        hardware = self.backend.hardware
        return hardware.has("tensor_cores") and not hardware.has("bf16")
