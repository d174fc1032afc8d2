"""Prepare a GPT-2 for a device: dtype, quantised weights, compiled decode step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from torchbridge.device import pick_device
from torchbridge.hardware import Hardware, probe
from torchbridge.llm.cache import KVCache
from torchbridge.llm.decode import CompiledDecode
from torchbridge.llm.generate import Sampling, generate
from torchbridge.llm.gpt2 import GPT2, TokenTable
from torchbridge.llm.quantise import (
    Int8Linear,
    Int8TokenTable,
    quantise_int8,
    why_no_int8,
)
from torchbridge.memory import model_bytes
from torchbridge.passes import PassResult, Prepared, Setting, apply


class QuantizationMode(str, Enum):
    """Storage format of the weights."""

    NONE = "none"
    INT8 = "int8"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMConfig:
    """Settings of the preparation; `quantization` may be given by value ("int8").

    `compile_backend` is torch.compile's for the decode step ("inductor"), or None.

    Raises:
        ValueError: the quantisation is unknown, or the dtype is no floating-point type.
    """

    quantization: QuantizationMode = QuantizationMode.NONE
    dtype: torch.dtype = torch.float32
    compile_backend: str | Callable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantization", QuantizationMode(self.quantization))
        if not self.dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point type, got {self.dtype}")


@dataclass(frozen=True, slots=True)
class OptimizedLLM:
    """A prepared model with its decode step and the passes applied."""

    prepared: Prepared
    decode: CompiledDecode | None = None

    @property
    def model(self) -> nn.Module:
        """The prepared model."""
        return self.prepared.model

    def generate(self, ids: Tensor, new_tokens: int, **options: Sampling | KVCache) -> Tensor:
        """Call `torchbridge.llm.generate` with this model, on its device.

        A compiled decode step is compiled for a cache's shape, so pass the same cache every time.

        Raises:
            ValueError: int8 weights are slower than unquantised ones for this batch and device.
        """
        ids = ids.to(self.model.device)
        if reason := why_no_int8(self.model, len(ids), compiled=self.decode is not None):
            raise ValueError(reason)
        return generate(self.model, ids, new_tokens, decode=self.decode, **options)


class LLMOptimizer:
    """Prepare models by an `LLMConfig`."""

    def __init__(
        self,
        config: LLMConfig | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.config = config or LLMConfig()
        self.device = device or pick_device()
        self.hardware = hardware or probe(self.device)

    def optimize(self, model: GPT2) -> OptimizedLLM:
        """Move and cast `model` in place, quantise a copy of it, and set it to evaluation mode."""
        setting = Setting(self.device, self.hardware)
        passes = [self._place, self._quantise, lay_out]
        prepared = apply(model.eval(), setting, passes, level="llm")
        backend = self.config.compile_backend
        decode = CompiledDecode(prepared.model, backend) if backend else None
        return OptimizedLLM(prepared, decode)

    def _place(self, model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
        model = model.to(setting.device, self.config.dtype)
        return model, PassResult("place", True, f"{model.dtype} on {model.device}")

    def _quantise(self, model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
        mode = self.config.quantization
        if mode is QuantizationMode.NONE:
            return model, PassResult("quantise", False, reason="quantization is 'none'")
        before = model_bytes(model)
        if mode is QuantizationMode.INT8:
            model, kinds = quantise_int8(model), (Int8Linear, Int8TokenTable)
        else:
            from torchbridge.fp8 import FP8InferenceEngine, FP8InferenceLinear

            # a scale per token: one for all of them would let a later token change an earlier one
            engine = FP8InferenceEngine(model, granularity="row")
            model, kinds = engine.prepare(), (FP8InferenceLinear,)
        layers = sum(isinstance(module, kinds) for module in model.modules())
        after = model_bytes(model)
        evidence = f"{layers} layers in {mode.value}, {before:,} bytes of weights are {after:,}"
        return model, PassResult("quantise", True, evidence)


def lay_out(model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
    """Store float32 weights [N, K] along N, in place, which a CPU reads faster for a single token.

    Shapes and values do not change. The head is a third of what a token reads.
    """
    if setting.device.type != "cpu":
        return model, PassResult("lay_out", False, reason="only a CPU gains by it")
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | TokenTable)]
    wide = [layer.weight for layer in layers if layer.weight.dtype == torch.float32]
    for weight in wide:
        weight.data = weight.data.T.contiguous().T
    if not wide:
        return model, PassResult("lay_out", False, reason="no linear layer in float32")
    return model, PassResult("lay_out", True, f"{len(wide)} weights stored along their outputs")
