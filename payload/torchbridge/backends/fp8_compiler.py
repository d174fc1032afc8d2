"""Convert a model's linear layers to FP8 on hardware that computes it natively."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge import passes
from torchbridge.backends.errors import OptimizationError
from torchbridge.backends.optimise import compile_model
from torchbridge.config import Config
from torchbridge.device import pick_device
from torchbridge.fp8 import (
    FP8InferenceEngine,
    FP8InferenceLinear,
    Job,
    NativeFP8Linear,
    convert_model_to_native_fp8,
    predict,
)
from torchbridge.fp8.conversion import linear_layers
from torchbridge.fp8.dispatch import no_units
from torchbridge.hardware import Hardware, probe
from torchbridge.memory import model_bytes
from torchbridge.numbers import relative_rms
from torchbridge.passes import PassResult, Prepared, Setting, difference

ALIGNMENT = 16  # both widths must be multiples of it; other layers are not converted
LIMIT = 0.15  # of the outputs' RMS: three times the rounding error of one layer on normal numbers
FP8_LAYERS = (FP8InferenceLinear, NativeFP8Linear)
# Where the driver does not tell clocks: whose data sheet, its SMs, hertz, bytes per second. Without
# sparsity they give its 121 (H100: 989, B200: 2,250) TFLOP/s of bfloat16, and twice that of FP8.
DATA_SHEETS = {
    "sm_89": ("NVIDIA L4's data sheet", 58, 2.037e9, 300e9),
    "sm_90": ("NVIDIA H100 SXM's data sheet", 132, 1.829e9, 3.35e12),
    "sm_100": ("NVIDIA B200's data sheet", 148, 1.856e9, 8e12),
}


@dataclass(frozen=True, slots=True)
class SpeedupEstimate:
    """Predicted speedup of the linear layers by FP8, in seconds of one compiled forward pass.

    `layers` maps each layer to its own speedup, 1.0 for those that stay in bfloat16; `source` names
    the origin of the peak rates.
    """

    speedup: float
    bf16_s: float
    fp8_s: float
    tokens: int
    layers: Mapping[str, float]
    source: str


class FP8Compiler:
    """Convert linear layers whose widths are multiples of 16, if the hardware has FP8 units.

    `hardware` is by default this machine's.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.config = config if config is not None else Config()
        self.device = device if device is not None else pick_device()
        self.hardware = hardware if hardware is not None else probe(self.device)

    @property
    def supported(self) -> bool:
        """Whether the GPU has FP8 units and the config does not disable them."""
        allowed = self.config.hardware.nvidia.fp8_enabled is not False
        return allowed and self.hardware.vendor == "nvidia" and self.hardware.has("fp8")

    def prepare_for_fp8(self, model: nn.Module, *, for_inference: bool = True) -> nn.Module:
        """Convert for inference a copy that stores float8 weights, for training the model itself.

        In training the layers keep their parameters, so an optimizer stays valid. If nothing can be
        converted, it warns and returns the model unchanged.
        """
        reason = self._why_not(model)
        if reason is not None:
            warnings.warn(f"the model stays as it is: {reason}", stacklevel=2)
            return model
        return self._convert(model, for_inference)

    def apply_pass(self, model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
        """Apply `prepare_for_fp8` as an optimization pass."""
        reason = self._why_not(model)
        if reason is not None:
            return model, PassResult("fp8", False, reason=reason)
        before = _linears(model)
        converted = self._convert(model, not setting.training)
        return converted, difference("fp8", before, _linears(converted), reason="nothing converted")

    def compile_with_fp8(
        self, model: nn.Module, sample_inputs: Sequence[Tensor], *, backend: str = "inductor"
    ) -> Prepared:
        """Convert for inference, compare the outputs on the sample inputs, and compile.

        Raises:
            OptimizationError: the outputs differ by more than `LIMIT` (relative RMS).
        """
        setting = Setting(
            self.device, self.hardware, False, tuple(sample_inputs), compile_backend=backend
        )
        converted, result = self.apply_pass(model, setting)
        if not result.applied:
            return Prepared(model, "fp8", (result,), (f"fp8: {result.reason}",))
        with torch.no_grad():
            expected = copy.deepcopy(model).eval()(*sample_inputs)
            error = relative_rms(converted(*sample_inputs), expected)
        if not error <= LIMIT:
            raise OptimizationError(f"FP8 moves the outputs by {error:.1%}, over {LIMIT:.0%}")
        prepared = passes.apply(converted, setting, (compile_model,), level="fp8")
        checked = replace(result, evidence=f"{result.evidence}, relative RMS {error:.1%}")
        return replace(prepared, passes=(checked, *prepared.passes))

    def get_fp8_stats(self, model: nn.Module) -> dict[str, Any]:
        """Return layer counts, the FP8 share of weights, storage bytes and paths taken."""
        fp8 = [m for m in model.modules() if isinstance(m, FP8_LAYERS)]
        plain = linear_layers(model)
        converted = sum(m.in_features * m.out_features for m in fp8)
        left = sum(m.weight.numel() for m in plain.values())
        return {
            "fp8_layers": len(fp8),
            "other_linear_layers": len(plain),
            "eligible_layers": len(plain) - len(_unaligned(model)),
            "coverage": converted / max(converted + left, 1),
            "storage_bytes": model_bytes(model),
            "paths_taken": sorted({str(m.path_taken) for m in fp8}),
        }

    def estimate_speedup(self, model: nn.Module, *, tokens: int = 4096) -> SpeedupEstimate:
        """Predict the speedup of the model's linear layers for `tokens` rows by `fp8.predict`.

        Raises:
            ValueError: the hardware has no FP8, its peaks are unknown, or there is no linear layer.
        """
        layers, odd = linear_layers(model), set(_unaligned(model))
        if not layers:
            raise ValueError(f"{type(model).__name__} has no nn.Linear to estimate")
        hardware, source = _described(self.hardware)
        before, after = {}, {}
        for name, one in layers.items():
            job = Job(tokens, one.in_features, one.out_features, kept=True)
            prediction = predict(job, hardware)
            if prediction is None:
                raise ValueError(f"the peaks of {hardware.target} are not known")
            before[name] = prediction.plain_s
            after[name] = prediction.plain_s if name in odd else prediction.float8_s
        factors = {name: before[name] / after[name] for name in layers}
        seconds = sum(before.values()), sum(after.values())
        return SpeedupEstimate(seconds[0] / seconds[1], *seconds, tokens, factors, source)

    def _why_not(self, model: nn.Module) -> str | None:
        """Return why a model cannot be converted; None if it can."""
        if self.config.hardware.nvidia.fp8_enabled is False:
            return "the config turns FP8 off"
        if not self.supported:
            found = self.hardware.target or self.hardware.vendor
            return f"{found} has no FP8 units (sm_89 and later have)"
        if len(linear_layers(model)) == len(_unaligned(model)):
            return f"no nn.Linear whose widths are multiples of {ALIGNMENT}"
        return None

    def _convert(self, model: nn.Module, for_inference: bool) -> nn.Module:
        skip = _unaligned(model)
        if for_inference:
            return FP8InferenceEngine(model, skip=skip).prepare()
        return convert_model_to_native_fp8(model, inplace=True, skip=skip)


def _unaligned(model: nn.Module) -> list[str]:
    """Return the names of the linear layers whose widths are not multiples of 16."""
    layers = linear_layers(model).items()
    return [n for n, m in layers if m.in_features % ALIGNMENT or m.out_features % ALIGNMENT]


def _linears(model: nn.Module) -> str:
    fp8 = sum(isinstance(module, FP8_LAYERS) for module in model.modules())
    return f"{fp8} of {fp8 + len(linear_layers(model))} linear layer(s) in FP8"


def _described(hardware: Hardware) -> tuple[Hardware, str]:
    """Return the hardware with units and clocks, and their source: the driver or a data sheet.

    Raises:
        ValueError: there are no FP8 units.
    """
    if (reason := no_units(hardware)) is not None:
        raise ValueError(reason)
    if not hardware.clock_hz and hardware.target in DATA_SHEETS:
        source, units, clock, bandwidth = DATA_SHEETS[hardware.target]
        facts = {"units": units, "clock_hz": clock, "memory_bytes_per_s": bandwidth}
        return replace(hardware, **facts), source
    clock = f"{hardware.clock_hz / 1e6:,.0f} MHz"
    return hardware, f"{hardware.units} units at {clock} ({hardware.target})"
