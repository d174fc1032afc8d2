"""Quantise weights to int8 with one step per row: w = q * step.

Features keep their dtype, products are summed in it or wider, biases and norms are unchanged.
`int8_path` decides whether a product reads the int8 weights or converts all of them first.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.llm.gpt2 import GPT2, TokenTable

LARGEST = 127  # symmetric: -128 is not used
VECTORS = torch.backends.cpu.get_cpu_capability()  # read once: torch 2.7 cannot trace the call
FEW = 4  # rows that a fused reduction computes at most; it reads the weights anew for each


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise weight [N, K] to int8 [N, K] with float32 steps [N]; error <= step / 2."""
    wide = weight.detach().float()
    step = wide.abs().amax(dim=1) / LARGEST
    step = torch.where(step > 0, step, 1.0)  # a row of zeros
    q = (wide / step[:, None]).round().clamp(-LARGEST, LARGEST)
    return q.to(torch.int8).contiguous(), step


class Int8Linear(nn.Module):
    """Linear layer with `weight` [N, K] int8, `step` [N] float32, and `bias` [N] or None."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        q, step = quantise_rows(linear.weight)
        self.register_buffer("weight", q)
        self.register_buffer("step", step)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., K] to [..., N]."""
        output = int8_linear(x, self.weight, self.step)
        return output if self.bias is None else output + self.bias


class Int8TokenTable(nn.Module):
    """`TokenTable` in int8; embedding and head share the rows, so also the steps."""

    def __init__(self, table: TokenTable) -> None:
        super().__init__()
        self.dtype = table.weight.dtype
        q, step = quantise_rows(table.weight)
        self.register_buffer("weight", q)
        self.register_buffer("step", step)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids [B, T] to features [B, T, d]."""
        return (self.weight[ids].float() * self.step[ids][..., None]).to(self.dtype)

    def logits(self, features: Tensor) -> Tensor:
        """Map features [..., d] to logits [..., V]."""
        return int8_linear(features, self.weight, self.step)


@dataclass(frozen=True, slots=True)
class Int8Path:
    """How a product with int8 weights is computed, and why.

    `fused`: the compiler's kernel converts the weights as it reads them and sums in float32.
    `packed`: torch's kernel for bfloat16 does so. `wide`: all weights are converted in memory
    before the product, which is slower than unquantised weights.
    """

    name: str
    reason: str


def int8_path(
    rows: int, dtype: torch.dtype, device: torch.device, *, compiling: bool, vectors: str = VECTORS
) -> Int8Path:
    """Choose the path for `rows` rows; `vectors` is torch's name of the CPU's capability."""
    if device.type == "cpu" and dtype == torch.bfloat16 and vectors.startswith("AVX"):
        return Int8Path("packed", f"torch has a kernel for bfloat16 and {vectors}")
    if compiling and rows <= FEW:
        return Int8Path("fused", f"compiled, and at most {FEW} rows")
    if rows > FEW:
        return Int8Path("wide", f"{rows} rows are worth a matrix product, which is wide")
    return Int8Path("wide", f"not compiled, and torch has no kernel for {dtype} on {device.type}")


def int8_linear(x: Tensor, weight: Tensor, step: Tensor) -> Tensor:
    """Compute x [..., K] times q [N, K] and step [N] -> [..., N]; the step multiplies the sums."""
    rows = x.numel() // x.shape[-1]
    path = int8_path(rows, x.dtype, x.device, compiling=torch.compiler.is_compiling())
    if path.name == "fused":
        return _fused(x, weight, step)
    if path.name == "packed":
        return _packed(x, weight, step)
    return F.linear(x, weight.to(x.dtype)) * step.to(x.dtype)


def _fused(x: Tensor, weight: Tensor, step: Tensor) -> Tensor:
    """Multiply elementwise and sum, which a compiler fuses; in eager mode it needs much memory."""
    return ((x.float()[..., None, :] * weight.float()).sum(dim=-1) * step).to(x.dtype)


def _packed(x: Tensor, weight: Tensor, step: Tensor) -> Tensor:
    """Multiply by torch's kernel with steps of one, as it would round the steps to bfloat16."""
    flat = x.reshape(-1, x.shape[-1])
    ones = torch.ones_like(step, dtype=x.dtype)
    sums = torch._weight_int8pack_mm(flat, weight, ones)  # noqa: SLF001  it has no public name
    return (sums * step).to(x.dtype).view(*x.shape[:-1], -1)


def decode_path(model: nn.Module, batch: int, *, compiled: bool) -> Int8Path | None:
    """Return the path of a decode step of `batch` sequences; None without int8 weights."""
    for module in model.modules():
        if isinstance(module, Int8TokenTable):
            device = module.weight.device
            return int8_path(batch, module.dtype, device, compiling=compiled)
    return None


def why_no_int8(model: nn.Module, batch: int, *, compiled: bool) -> str | None:
    """Return why int8 weights slow down decoding `batch` sequences on an accelerator, or None."""
    path = decode_path(model, batch, compiled=compiled)
    if path is None or path.name != "wide" or model.device.type == "cpu":
        return None
    return (
        f"int8 weights would be widened at every step ({path.reason}), slower than wide ones: "
        f"compile the decode of at most {FEW} sequences, use quantization 'none', or torchao"
    )


def quantise_int8(model: GPT2) -> GPT2:
    """Return a copy of the model with all matrices in int8, in evaluation mode.

    Norms, biases and position embedding are shared with the original. Cast before quantising: steps
    are float32 for every dtype.
    """
    shared = {id(p): p for p in model.parameters()}
    quantised = copy.deepcopy(model, shared)
    quantised.tokens = Int8TokenTable(model.tokens)
    for module in list(quantised.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    return quantised.eval()
