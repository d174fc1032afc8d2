"""Inference with weights that are stored in float8 only."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.float8 import (
    BLOCK,
    FP8Dtype,
    FP8QuantizedTensor,
    Granularity,
    amax_of,
    dequantize_from_fp8,
    format_of,
    scale_from_amax,
)
from torchbridge.fp8 import linear as layers
from torchbridge.fp8.conversion import PinnedDtypes, copy_with, linear_layers
from torchbridge.fp8.dispatch import Choice, choose_for
from torchbridge.fp8.linear import GRANULARITIES, always_called, quantised
from torchbridge.fp8.matmul import Path, find_path, scaled_matmul
from torchbridge.memory import model_bytes
from torchbridge.passes import evaluating


class FP8InferenceLinear(PinnedDtypes):
    """Compute y = x W^T + b for x [..., in] with W stored in float8 only; no gradients.

    `input_scale` is a fixed quantisation scale of the input from calibration, or None to compute
    one per input. `path` and `fast_accum` are as in NativeFP8Linear, but without float8 units
    `predicted` becomes `weight_only`: W is cast to x's dtype in each call.

    Raises:
        ValueError: (in forward) the path is unknown.
        RuntimeError: (in forward) the requested path cannot run on the device.
    """

    pinned = ("weight", "weight_scale", "input_scale")

    def __init__(
        self,
        linear: nn.Linear,
        *,
        fmt: FP8Dtype = FP8Dtype.E4M3,
        granularity: str = "tensor",
        path: str | None = None,
        fast_accum: bool = True,
        input_amax: Tensor | None = None,
    ) -> None:
        """Quantise the weight of `linear`, which is not changed."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.input_kind = Granularity(granularity)
        weight_kind = Granularity.TILE if granularity == "block" else self.input_kind
        quantised = FP8QuantizedTensor.from_tensor(linear.weight, fmt, granularity=weight_kind)
        self.register_buffer("weight", quantised.data)
        self.register_buffer("weight_scale", quantised.scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        limit = torch.finfo(quantised.data.dtype).max
        input_scale = None if input_amax is None else scale_from_amax(input_amax, limit)
        self.register_buffer("input_scale", input_scale)
        self.path, self.fast_accum = path or layers.DEFAULT_PATH, fast_accum
        self.taken, self.choice = Path("none yet"), None
        self.register_forward_pre_hook(always_called)
        self.train(linear.training)

    @property
    def path_taken(self) -> str:
        """How the last forward was computed."""
        return self.taken.name if self.choice is None else self.choice.describe(self.taken.name)

    @property
    def fallback(self) -> str | None:
        """Why the last forward did not use float8 units; None if it did."""
        return self.taken.fallback

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out] in x's dtype."""
        flat = x.reshape(-1, self.in_features)
        self.choice = self._choose(flat) if self.path == "predicted" else None
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self.choice is not None and not self.choice.float8:
            self.taken = self.choice.plain
            return F.linear(x, dequantize_from_fp8(self.weight, self.weight_scale, x.dtype), bias)
        out, self.taken = self._product(flat, bias)
        return out.reshape(*x.shape[:-1], self.out_features)

    def _product(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Path]:
        """Quantise x [M, in], multiply it by the transposed weight, and add the bias."""
        fmt = format_of(self.weight.dtype)
        if self.input_scale is None:
            a = quantised(x, fmt, self.input_kind)
        else:
            a = FP8QuantizedTensor.from_tensor(x, fmt, scale=self.input_scale)
        b = FP8QuantizedTensor(self.weight, self.weight_scale, torch.float32)
        path = "auto" if self.path == "predicted" else self.path
        return scaled_matmul(a, b, bias, out_dtype=x.dtype, path=path, fast_accum=self.fast_accum)

    def _product_of(self, x: Tensor) -> Path:
        """Return the path of a float8 product of x [M, in]."""
        blocks = self.input_kind is Granularity.BLOCK and self.in_features > BLOCK
        heights = (1, BLOCK if self.out_features > 1 else 1) if blocks else None
        single, dtype = self.input_kind is Granularity.TENSOR, self.weight.dtype
        return find_path(x.device, dtype, dtype, x.dtype, single=single, heights=heights)

    def _choose(self, x: Tensor) -> Choice:
        """Choose for x [M, in] between the float8 product and the weight cast to x's dtype."""
        columns, inner = self.weight.shape  # known while tracing, in_features may be a symbol
        split = self._product_of(x).splits is not None
        how = self.input_kind.value, False, True, True, split  # quantised, and nothing else
        return choose_for(x.device, x.shape[0], inner, columns, x.dtype, x.dtype, *how)

    def extra_repr(self) -> str:
        """Return sizes, dtype and granularity as text."""
        widths = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{widths}, {self.weight.dtype}, granularity={self.input_kind.value}"


class FP8InferenceEngine:
    """Build a copy of a model whose linear layers store float8 weights only.

    `skip` are name patterns of layers to leave unchanged.
    """

    def __init__(
        self,
        model: nn.Module,
        fmt: FP8Dtype = FP8Dtype.E4M3,
        *,
        granularity: str = "tensor",
        path: str | None = None,
        skip: Iterable[str] = (),
    ) -> None:
        if granularity not in GRANULARITIES:
            raise ValueError(f"granularity {granularity!r} is none of {', '.join(GRANULARITIES)}")
        self.source: nn.Module | None = model
        self.fmt, self.granularity, self.path = FP8Dtype(fmt), granularity, path
        self.skip = tuple(skip)
        self.model: nn.Module | None = None
        self._original: dict[str, int] = {}

    @torch.no_grad()
    def prepare(self, calibration: Iterable[Tensor] = ()) -> nn.Module:
        """Build the float8 model, once, and drop the reference to the original.

        `calibration` inputs fix the layers' input scales, which saves computing them in each call;
        later inputs beyond the calibrated range saturate.

        Raises:
            RuntimeError: the engine is prepared already.
            ValueError: there is no linear layer, or calibration without granularity "tensor".
        """
        if self.source is None:
            raise RuntimeError("the engine is prepared already; make another from the original")
        layers = linear_layers(self.source, self.skip)
        if not layers:
            raise ValueError(f"{type(self.source).__name__} has no nn.Linear to convert")
        amax = _largest_inputs(self.source, layers.values(), calibration)
        if amax and self.granularity != "tensor":
            raise ValueError("calibration fixes a scale per tensor; use granularity='tensor'")
        settings = {"fmt": self.fmt, "granularity": self.granularity, "path": self.path}
        self.model = copy_with(
            self.source,
            {
                linear: FP8InferenceLinear(linear, **settings, input_amax=amax.get(linear))
                for linear in layers.values()
            },
        ).eval()
        weights = sum(one.weight.untyped_storage().nbytes() for one in layers.values())
        self._original = {"model": model_bytes(self.source), "weights": weights}
        self.source = None
        return self.model

    def infer(self, *inputs: Tensor) -> Tensor:
        """Return the output of the float8 model.

        Raises:
            RuntimeError: the engine was not prepared.
        """
        with torch.no_grad():
            return self._prepared()(*inputs)

    def get_memory_savings(self) -> dict[str, float]:
        """Return the measured storage bytes of both models and of the converted weights.

        Raises:
            RuntimeError: the engine was not prepared.
        """
        after, layers = model_bytes(self._prepared()), self._layers().values()
        before, weights = self._original["model"], self._original["weights"]
        fp8_weights = sum(one.weight.untyped_storage().nbytes() for one in layers)
        return {
            "original_bytes": before,
            "fp8_bytes": after,
            "saved_fraction": 1 - after / before,
            "original_weight_bytes": weights,
            "fp8_weight_bytes": fp8_weights,
            "scale_bytes": sum(one.weight_scale.untyped_storage().nbytes() for one in layers),
            "weight_saved_fraction": 1 - fp8_weights / weights,
        }

    def get_layer_info(self) -> dict[str, dict[str, object]]:
        """Return, per converted layer, its sizes, scales, bytes, and last path.

        Raises:
            RuntimeError: the engine was not prepared.
        """
        return {
            name: {
                "in_features": layer.in_features,
                "out_features": layer.out_features,
                "dtype": layer.weight.dtype,
                "weight_scale": layer.weight_scale,
                "input_scale": layer.input_scale,
                "weight_bytes": layer.weight.untyped_storage().nbytes(),
                "path_taken": layer.path_taken,
                "fallback": layer.fallback,
            }
            for name, layer in self._layers().items()
        }

    def _layers(self) -> dict[str, FP8InferenceLinear]:
        """Return the converted layers by name."""
        modules = self._prepared().named_modules()
        return {name: one for name, one in modules if isinstance(one, FP8InferenceLinear)}

    def _prepared(self) -> nn.Module:
        """Return the float8 model. Raises RuntimeError before `prepare`."""
        if self.model is None:
            raise RuntimeError("the engine is not prepared: call prepare() first")
        return self.model


def _largest_inputs(
    model: nn.Module, layers: Iterable[nn.Linear], batches: Iterable[Tensor]
) -> dict[nn.Module, Tensor]:
    """Return the largest magnitude of each layer's inputs in these batches, float32 []."""
    amax: dict[nn.Module, Tensor] = {}

    def record(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        seen = amax_of(arguments[0])
        amax[layer] = torch.maximum(amax[layer], seen) if layer in amax else seen

    hooks = [layer.register_forward_pre_hook(record) for layer in layers]
    try:
        with evaluating(model):
            for batch in batches:
                model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return amax
