"""A linear layer whose three matrix products are computed in float8."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.float8 import BLOCK, FP8Dtype, FP8QuantizedTensor, Granularity, native_dtype
from torchbridge.fp8.dispatch import Choice, choose_for
from torchbridge.fp8.matmul import PATHS, Heights, Path, find_path, scaled_matmul
from torchbridge.kernels.quantise import quantise_rows
from torchbridge.kernels.registry import autocast_dtype

GRANULARITIES = ("tensor", "row", "block")
LAYER_PATHS = (*PATHS, "predicted")
DEFAULT_PATH = "predicted"  # default path of layers
_PRODUCTS = ("forward", "grad_input", "grad_weight")


def quantised(
    x: Tensor, fmt: FP8Dtype, granularity: Granularity, margin: float = 0.0
) -> FP8QuantizedTensor:
    """Quantise x [M, K] with its own scales, as `FP8QuantizedTensor.from_tensor`.

    Row scales use a kernel of `torchbridge.kernels` if there is one for the device, but not under
    torch.compile, which fuses the composition with what produced x.
    """
    if granularity is Granularity.ROW and margin == 0 and not torch.compiler.is_compiling():
        return quantise_rows(x, native_dtype(fmt, x.device))
    return FP8QuantizedTensor.from_tensor(x, fmt, granularity=granularity, margin=margin)


def always_called(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Forward pre-hook that does nothing.

    nn.TransformerEncoderLayer calls layers that have a hook; otherwise, in eval mode, it reads
    their weights directly and bypasses the float8 product.
    """


class NativeFP8Linear(nn.Linear):
    """nn.Linear with float8 products: y = x W^T + b, dL/dx = g W, dL/dW = g^T x; x [..., in].

    The weight stays a Parameter in its own dtype and is quantised in every step. `forward_format`
    is of activations and weight, `backward_format` of gradients. `granularity`: one scale per
    tensor, per row, or per 128 columns (of the weight: per 128 x 128 tile). In eval mode the
    quantised weight is kept until the weight changes; writes through `.data` are not noticed
    (`sync_weights`). `path`: "predicted" (default) computes in the dtype of the input, or
    autocast's, if that is predicted to be faster (dispatch.py); auto, scaled_mm and dequantised
    always use float8. `path_taken` says how the last forward was computed, `fallback` why not by
    float8 units, `paths` how each product was. `fast_accum`: the forward product accumulates in the
    units' own precision where the kernel can, with an error of 0.1 % (rounding to e4m3: 3.7 %,
    relative RMS); gradients never do, because they sum over all tokens.

    Raises:
        ValueError: the granularity is unknown, or (in forward) the path.
        RuntimeError: (in forward) the requested path cannot run on the device.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        forward_format: FP8Dtype = FP8Dtype.E4M3,
        backward_format: FP8Dtype = FP8Dtype.E5M2,
        granularity: str = "tensor",
        margin: float = 0.0,
        path: str | None = None,
        fast_accum: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if granularity not in GRANULARITIES:
            raise ValueError(f"granularity {granularity!r} is none of {', '.join(GRANULARITIES)}")
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.forward_format = FP8Dtype(forward_format)
        self.backward_format = FP8Dtype(backward_format)
        self.granularity, self.margin = granularity, margin
        self.path, self.fast_accum = path or DEFAULT_PATH, fast_accum
        self.paths: dict[str, Path] = {}
        self.choice: Choice | None = None
        self._synced: FP8QuantizedTensor | None = None
        self._kept: tuple[object, FP8QuantizedTensor] | None = None
        self.register_forward_pre_hook(always_called)

    @property
    def path_taken(self) -> str | None:
        """How the last forward was computed; None before the first."""
        if not self.paths:
            return None
        name = self.paths["forward"].name
        return name if self.choice is None else self.choice.describe(name)

    @property
    def fallback(self) -> str | None:
        """Why the last forward did not use float8 units; None if it did."""
        return self.paths["forward"].fallback if self.paths else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out] in x's dtype or autocast's."""
        dtype = autocast_dtype(x) or x.dtype
        flat = x.reshape(-1, self.in_features)
        paths = self._plan(flat, dtype)
        split = paths["forward"].splits is not None
        self.choice = self._choose(flat, dtype, split) if self.path == "predicted" else None
        if self.choice is not None and not self.choice.float8:
            self.paths = dict.fromkeys(_PRODUCTS, self.choice.plain)
            bias = None if self.bias is None else self.bias.to(dtype)
            return F.linear(x.to(dtype), self.weight.to(dtype), bias)
        self.paths = paths
        out = _FP8Product.apply(flat, self.weight, self, dtype)
        if self.bias is not None:
            out = out + self.bias.to(dtype)
        return out.reshape(*x.shape[:-1], self.out_features)

    def quantize(self, role: str, matrix: Tensor) -> FP8QuantizedTensor:
        """Quantise `matrix` with scales along its rows; `role` is input, weight or gradient."""
        fmt = self.backward_format if role == "gradient" else self.forward_format
        kind = Granularity(self.granularity)
        if kind is Granularity.BLOCK and role == "weight":
            kind = Granularity.TILE
        return quantised(matrix, fmt, kind, self.margin)

    def quantized_weight(self) -> FP8QuantizedTensor:
        """Return the quantised weight; in eval mode it is cached."""
        if self.training:
            return self.quantize("weight", self.weight)
        if self._synced is not None:
            return self._synced
        state = None if torch.compiler.is_compiling() else self._state()
        if state is None:
            return self.quantize("weight", self.weight)
        if self._kept is None or self._kept[0] != state:
            self._kept = state, self._quantized_now()
        return self._kept[1]

    def sync_weights(self) -> FP8QuantizedTensor:
        """Quantise the weight once for all later calls in eval mode, compiled or not.

        Call it again after the weight has changed. Moving the layer drops the quantised weight.
        """
        self._synced = self._quantized_now()
        return self._synced

    @torch.inference_mode(False)  # the cached weight may be used with gradients
    def _quantized_now(self) -> FP8QuantizedTensor:
        return self.quantize("weight", self.weight)

    def _state(self) -> object:
        """Return a key of all that the quantised weight depends on; None if it cannot be cached."""
        if self.weight.is_inference():  # such tensors have no version counter
            return None
        changes = self.weight._version  # noqa: SLF001  torch's own count has no public name
        of_weight = self.weight.data_ptr(), changes, self.weight.dtype
        return *of_weight, self.forward_format, self.granularity, self.margin

    def get_fp8_info(self) -> dict[str, object]:
        """Return formats, scale, error of the quantised weight, and the last forward's path."""
        quantised = NativeFP8Linear.quantize(self, "weight", self.weight)  # leaves no history
        error = (quantised.dequantize(torch.float32) - self.weight.detach().float()).square().mean()
        size = self.weight.detach().float().square().mean()
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "forward_format": self.forward_format.value,
            "backward_format": self.backward_format.value,
            "granularity": self.granularity,
            "weight_scale": quantised.scale.cpu(),
            "weight_bytes": self.weight.untyped_storage().nbytes(),
            "fp8_weight_bytes": quantised.nbytes,
            "weight_rms_error": (error / size).sqrt().item(),
            "path_taken": self.path_taken,
            "fallback": self.fallback,
        }

    def extra_repr(self) -> str:
        """Return sizes, formats and granularity as text."""
        formats = f"{self.forward_format.value}/{self.backward_format.value}"
        return f"{super().extra_repr()}, {formats}, granularity={self.granularity}"

    def _choose(self, x: Tensor, dtype: torch.dtype, split: bool) -> Choice:
        """Choose for x [M, in] between float8 products and products in `dtype`."""
        kept = not self.training and (self._synced is not None or not torch.compiler.is_compiling())
        wanted = x.requires_grad or self.weight.requires_grad
        how = self.granularity, torch.is_grad_enabled() and wanted, kept, False, split
        columns, inner = self.weight.shape  # known while tracing, in_features may be a symbol
        return choose_for(x.device, x.shape[0], inner, columns, dtype, self.weight.dtype, *how)

    @property
    def product_path(self) -> str:
        """The path passed to the float8 products."""
        return "auto" if self.path == "predicted" else self.path

    def _plan(self, x: Tensor, out_dtype: torch.dtype) -> dict[str, Path]:
        """Return the path of each of the three products by name, in advance; x [M, in]."""
        near = native_dtype(self.forward_format, x.device)
        back = native_dtype(self.backward_format, x.device)
        how = {"single": self.granularity == "tensor", "path": self.product_path}
        near_x = {**how, "fast_accum": self.fast_accum}
        blocks, device = self._blocks(x.shape[0]), x.device
        forward, by_input, by_weight = ({"heights": blocks[name]} for name in _PRODUCTS)
        return {
            "forward": find_path(device, near, near, out_dtype, **near_x, **forward),
            "grad_input": find_path(device, back, near, x.dtype, **how, **by_input),
            "grad_weight": find_path(device, back, near, self.weight.dtype, **how, **by_weight),
        }

    def _blocks(self, rows: int) -> dict[str, Heights | None]:
        """Return, by product, how many rows of each operand share a block scale; None without."""
        if self.granularity != "block":
            return dict.fromkeys(_PRODUCTS)
        (columns, inner), (forward, by_input, by_weight) = self.weight.shape, _PRODUCTS
        tiled = {forward: (inner, columns), by_input: (columns, inner), by_weight: (rows, 1)}
        return {
            name: (1, BLOCK if height > 1 else 1) if summed > BLOCK else None
            for name, (summed, height) in tiled.items()
        }

    def train(self, mode: bool = True) -> nn.Module:
        """Set the mode as nn.Module, and drop the quantised weight kept for eval mode."""
        self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        self._synced = self._kept = None  # device or dtype may have changed
        return super()._apply(fn, recurse)


class _FP8Product(torch.autograd.Function):
    """Compute x [M, K] times weight [N, K] transposed, and both gradients in backward."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, layer: NativeFP8Linear, dtype: torch.dtype):
        a, b = layer.quantize("input", x), layer.quantized_weight()
        ctx.layer, ctx.dtypes, ctx.single = layer, (x.dtype, weight.dtype), a.scale.ndim == 0
        # A single scale fits the transposed matrix too: float8 is all that backward needs.
        ctx.save_for_backward(*((a.data, a.scale, b.data, b.scale) if ctx.single else (x, weight)))
        how = {"path": layer.product_path, "fast_accum": layer.fast_accum}
        return scaled_matmul(a, b, out_dtype=dtype, **how)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        layer, (x_dtype, weight_dtype) = ctx.layer, ctx.dtypes
        gradient = layer.quantize("gradient", grad)
        if ctx.single:
            a, a_scale, b, b_scale = ctx.saved_tensors
            x = FP8QuantizedTensor(a, a_scale, x_dtype)
            weight, grad = FP8QuantizedTensor(b, b_scale, weight_dtype), gradient
        else:
            x, weight = ctx.saved_tensors
        by_x = by_weight = None
        if ctx.needs_input_grad[0]:
            weight_t = _transposed(layer, "weight", weight)
            by_x, _ = scaled_matmul(gradient, weight_t, out_dtype=x_dtype, path=layer.product_path)
        if ctx.needs_input_grad[1]:
            operands = _transposed(layer, "gradient", grad), _transposed(layer, "input", x)
            by_weight, _ = scaled_matmul(*operands, out_dtype=weight_dtype, path=layer.product_path)
        return by_x, by_weight, None, None


def _transposed(
    layer: NativeFP8Linear, role: str, matrix: Tensor | FP8QuantizedTensor
) -> FP8QuantizedTensor:
    """Return the transposed matrix, quantised again unless it has a single scale."""
    if isinstance(matrix, FP8QuantizedTensor):
        return matrix.t()
    return layer.quantize(role, matrix.t())
