"""Operations that have a kernel of our own next to the library's, by one name each.

`path` is a kernel's name, "triton" or "torch", which is used or refused, or "auto" for the best.
Under torch.compile, export and trace that is the library's, which they fuse; under autocast too
where it has rules. What "auto" takes elsewhere is said where a kernel is registered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels import cross_entropy, gpu, matrices
from torchbridge.kernels.registry import (
    REGISTRY,
    Kernel,
    Request,
    autocast_on,
    hardware_of,
    traced,
)

if TYPE_CHECKING:
    from torchbridge.float8 import FP8QuantizedTensor

NORM_WIDEST = 8192  # numbers of a row for which one read makes all gradients of a norm
SOFTMAX_BYTES = 48 * 1024  # of a row that torch's softmax keeps in shared memory
_MIXED, _WIDE = "mixed dtypes", "wide rows"


def rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float | None = None, *, path: str = "auto"
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension: x [..., n], weight [n].

    `eps` is the smallest step of x's dtype unless given. Differentiable.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
    """
    eps = torch.finfo(x.dtype).eps if eps is None else eps  # torch's CUDA kernel has float32's
    run = _kernel("rms_norm", _torch_rms_norm, (x, weight), path, _norm_variant(x, weight))
    return run(x, weight, eps)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    path: str = "auto",
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension of x [..., n].

    weight and bias [n]. Differentiable.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
    """
    variant = _norm_variant(x, weight, bias)
    run = _kernel("layer_norm", _torch_layer_norm, (x, weight, bias), path, variant)
    return run(x, weight, bias, eps)


def softmax(x: Tensor, dim: int = -1, *, path: str = "auto") -> Tensor:
    """e^x / sum(e^x) along `dim`, of x's shape and dtype. Differentiable.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
    """
    along_rows = dim in (-1, x.ndim - 1)
    wide = along_rows and x.ndim and x.shape[-1] * x.element_size() > SOFTMAX_BYTES
    size = "" if not wide else _WIDE if traced() or x.shape[-1] % 16 == 0 else matrices.ODD
    variant = size if along_rows and x.ndim else "across rows"
    return _kernel("softmax", F.softmax, (x,), path, variant)(x, dim=dim)


def quantise_rows(
    x: Tensor, dtype: torch.dtype | None = None, *, path: str = "auto"
) -> FP8QuantizedTensor:
    """x [m, n] in float8 with a scale for each row, as `FP8QuantizedTensor.from_tensor` has it.

    `dtype` is a float8 dtype in the encoding of x's device, by default its e4m3. No gradient.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
        ValueError: `x` is no matrix.
    """
    from torchbridge.float8 import FP8Dtype, native_dtype

    if x.ndim != 2:
        raise ValueError(f"a matrix has rows, shape {tuple(x.shape)} has not")
    dtype = native_dtype(FP8Dtype.E4M3, x.device) if dtype is None else dtype
    variant = str(dtype).removeprefix("torch.float8_")
    run = _kernel("quantise_rows", _torch_quantise, (x.detach(),), path, variant, ruled=False)
    return run(x, dtype)


def gated_linear(
    x: Tensor,
    gate: Tensor,
    up: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str = "silu",
    *,
    path: str = "auto",
) -> Tensor:
    """act(x gate^T) * (x up^T), without `up` act(x gate^T + bias): x [..., d] -> [..., h].

    gate and up [h, d], bias [h]; relu, gelu, gelu_tanh or silu. Differentiable.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
        ValueError: an unknown activation, or a bias next to `up`.
    """
    tensors = (x, gate, up, bias)
    rows = 0 if traced() else x.numel() // max(x.shape[-1], 1)
    variant = matrices.rows_variant(rows, 1, *tensors)
    return _kernel("gated_linear", matrices.gated_linear, tensors, path, variant)(
        *tensors, activation
    )


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, *, path: str = "auto", **settings: Any
) -> Tensor:
    """cross_entropy(x weight^T, target) that holds the logits of a few tokens at a time.

    x [..., d], weight [V, d], target [...] int64; `settings` are `ignore_index`, `label_smoothing`,
    `z_loss`, `reduction`, `skip_ignored` and `rows`, as `cross_entropy.linear_cross_entropy` has
    them. Differentiable once. Under torch.compile it is one operation that takes its kernel as it
    does elsewhere.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
        ValueError: shapes, dtypes or settings that make no sense.
    """
    if path == "auto":
        return cross_entropy.linear_cross_entropy(x, weight, target, way="auto", **settings)
    run = _kernel("linear_cross_entropy", _torch_cross_entropy, (x, weight), path)
    return run(x, weight, target, **settings)


def moe_experts(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "relu",
    gated: bool = False,
    *,
    path: str = "auto",
) -> Tensor:
    """The sum of weight * expert(x) over each token's experts: x [T, d] -> [T, d].

    experts [T, k] int64, weights [T, k], up [E, h, d] (gated [E, 2h, d]: act(first half) * second
    half), down [E, d, h], biases [E, h or 2h] and [E, d]. The kernel in Triton has no backward.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
        ValueError: an unknown activation.
        IndexError: an expert that there is not; the kernel in Triton answers NaN for its token.
    """
    tensors = (x, up, down, up_bias, down_bias)
    variant = matrices.rows_variant(0 if traced() else experts.numel(), len(up), *tensors)
    asked = (*tensors, weights)
    run = _kernel("moe_experts", matrices.moe_experts, asked, path, variant)
    return run(x, experts, weights, *tensors[1:], activation, gated)


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor, *, path: str = "auto") -> Tensor:
    """rows[start:end] @ weights[e].T per expert: [A, K], [E, N, K], ends [E] int32 -> [A, N].

    `ends` are one past each expert's last row, ascending to A. The library's way asks the device
    for them and loops; torch's own grouped product is `torchbridge.moe.grouped`. Differentiable.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
    """
    variant = matrices.rows_variant(0 if traced() else 1, 1, rows, weights)
    return _kernel("grouped_mm", matrices.grouped_mm, (rows, weights), path, variant)(
        rows, weights, ends
    )


def _kernel(
    operation: str,
    library: Callable[..., Any],
    tensors: tuple[Tensor | None, ...],
    path: str,
    variant: str = "",
    ruled: bool = True,
) -> Callable[..., Any]:
    """The function of the kernel to take; the first of `tensors` says where and in which dtype.

    `ruled`: autocast has rules for what the library does.
    """
    x = tensors[0]
    if path == "auto" and (traced() or (ruled and autocast_on(x.device.type))):
        return library
    given = [one for one in tensors if one is not None]
    gradient = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    request = Request(hardware_of(x.device), x.dtype, gradient, variant)
    if path == "auto":
        return REGISTRY.lookup(operation, request).kernel.run
    return REGISTRY.named(operation, path, request).run


def _norm_variant(x: Tensor, *affine: Tensor | None) -> str:
    if any(one is not None and one.dtype != x.dtype for one in affine):
        return _MIXED
    return _WIDE if x.shape[-1] > NORM_WIDEST else ""


def _refuse_norm(request: Request) -> str | None:
    if request.variant == _MIXED:
        return "weight and bias must have x's dtype"
    return gpu.refusal(request)


def _refuse_softmax(request: Request) -> str | None:
    if request.variant == "across rows":
        return "goes along the last dimension only"
    return gpu.refusal(request)


def _refuse_encoding(request: Request) -> str | None:
    from torchbridge.float8 import FP8Dtype, get_fp8_dtype

    native = {get_fp8_dtype(fmt, request.hardware) for fmt in FP8Dtype}
    names = sorted(str(one).removeprefix("torch.float8_") for one in native)
    if request.variant in names:
        return None
    hardware = request.hardware
    where = hardware.target if hardware.vendor in gpu.VENDORS else hardware.vendor
    return f"{where} computes with {' and '.join(names)}, not {request.variant}"


def _refuse_quantise(request: Request) -> str | None:
    if not request.variant.startswith("e4m3"):
        return f"computes e4m3, not {request.variant}"
    return _refuse_encoding(request) or gpu.refusal(request)


@functools.cache
def _library_has_rms_norm() -> bool:
    """Has torch a kernel for it on CUDA (torch 2.9), not a composition?"""
    try:
        has = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001  no public name asks
        return has("aten::_fused_rms_norm", "CUDA")
    except (AttributeError, RuntimeError):  # no such question, no such operator
        return False


def _yield_rms_norm(request: Request) -> str | None:
    return _yield_layer_norm(request) if _library_has_rms_norm() else None


def _yield_layer_norm(request: Request) -> str | None:
    if not request.gradient:
        return "torch's forward reads a row once, too"
    return "torch's backward reads wide rows as often" if request.variant == _WIDE else None


def _yield_softmax(request: Request) -> str | None:
    short = "torch's softmax reads such rows once, too"
    return None if request.variant == _WIDE else matrices.SLOW.get(request.variant, short)


def _torch_rms_norm(x: Tensor, weight: Tensor | None, eps: float | None) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def _torch_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _torch_quantise(x: Tensor, dtype: torch.dtype) -> FP8QuantizedTensor:
    from torchbridge.float8 import FP8QuantizedTensor, Granularity, format_of

    return FP8QuantizedTensor.from_tensor(x, format_of(dtype), granularity=Granularity.ROW)


def _triton_rms_norm(x: Tensor, weight: Tensor | None, eps: float | None) -> Tensor:
    from torchbridge.kernels.gpu import norms

    return norms.rms_norm(x, weight, eps)


def _triton_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    from torchbridge.kernels.gpu import norms

    return norms.layer_norm(x, weight, bias, eps)


def _triton_softmax(x: Tensor, dim: int) -> Tensor:
    from torchbridge.kernels.gpu import softmax as module

    return module.softmax(x)


def _triton_quantise(x: Tensor, dtype: torch.dtype) -> FP8QuantizedTensor:
    from torchbridge.float8 import FP8QuantizedTensor
    from torchbridge.kernels.gpu import quantise

    return FP8QuantizedTensor(*quantise.quantise_rows(x, dtype), x.dtype)


def _triton_gated_linear(*tensors: Any) -> Tensor:
    from torchbridge.kernels.gpu import gated_linear as module

    return module.gated_linear(*tensors)


def _torch_cross_entropy(*tensors: Tensor, **settings: Any) -> Tensor:
    return cross_entropy.linear_cross_entropy(*tensors, way="torch", **settings)


def _triton_cross_entropy(*tensors: Tensor, **settings: Any) -> Tensor:
    return cross_entropy.linear_cross_entropy(*tensors, way="triton", **settings)


def _triton_grouped(*tensors: Tensor) -> Tensor:
    from torchbridge.kernels.gpu import grouped_mm as module

    return module.grouped_mm(*tensors)


def _triton_experts(*tensors: Any) -> Tensor:
    from torchbridge.kernels.gpu import moe

    return moe.moe_experts(*tensors)


def _register(operation: str, run: Callable[..., Any], **told: Any) -> None:
    """A kernel in Triton, which goes before the library's."""
    needs = {"rank": 1, "vendors": gpu.VENDORS, "dtypes": gpu.DTYPES}
    REGISTRY.register(Kernel(operation, "triton", run, **{**needs, **told}))


# Eagerly, with gradients: x and the upstream gradient are read once for all gradients, where
# torch's backward reads them a second time for the weight's (5 passes over memory for 3). RMSNorm
# forward only where torch composes it of six kernels. Not under torch.compile, which fuses the norm
# with its neighbours.
_register("rms_norm", _triton_rms_norm, refuse=_refuse_norm, yields=_yield_rms_norm)
REGISTRY.register(Kernel("rms_norm", "torch", _torch_rms_norm))
_register("layer_norm", _triton_layer_norm, refuse=_refuse_norm, yields=_yield_layer_norm)
REGISTRY.register(Kernel("layer_norm", "torch", _torch_layer_norm))
# Eagerly, where a row outgrows the shared memory that torch's keeps it in: two reads for its three.
_register("softmax", _triton_softmax, refuse=_refuse_softmax, yields=_yield_softmax)
REGISTRY.register(Kernel("softmax", "torch", F.softmax))
# Eagerly: one read and one write, where the composition makes some eight passes. Under
# torch.compile the composition is one kernel, and fuses with what made x.
_register(
    "quantise_rows",
    _triton_quantise,
    features=frozenset({"fp8"}),
    differentiable=False,
    refuse=_refuse_quantise,
)
REGISTRY.register(
    Kernel("quantise_rows", "torch", _torch_quantise, refuse=_refuse_encoding, differentiable=False)
)
# For few rows, eagerly: one launch for three, and neither product goes through memory. For many the
# library's products are faster than Triton's by more than that traffic.
_register("gated_linear", _triton_gated_linear, refuse=matrices.refuse, yields=matrices.yields)
REGISTRY.register(Kernel("gated_linear", "torch", matrices.gated_linear))
# Always: both multiply by the library; between the products it reads and writes a chunk of logits
# once, where torch's operations go over a float32 copy of them some ten times.
_register("linear_cross_entropy", _triton_cross_entropy, refuse=matrices.refuse)
REGISTRY.register(Kernel("linear_cross_entropy", "torch", _torch_cross_entropy))
# For few rows: five launches, whatever the routing, and no wait for the device, where the library's
# way makes a handful for each expert and must know how many rows it has.
_register(
    "moe_experts",
    _triton_experts,
    differentiable=False,
    refuse=matrices.refuse,
    yields=matrices.yields,
)
REGISTRY.register(Kernel("moe_experts", "torch", matrices.moe_experts))
# For many rows, where torch's grouped product loops and waits (sm_80 to sm_89, pytorch #186620):
# one launch for all experts and no wait.
_register("grouped_mm", _triton_grouped, refuse=matrices.refuse, yields=matrices.yields_grouped)
REGISTRY.register(Kernel("grouped_mm", "torch", matrices.grouped_mm))
