"""Choose how the experts of a call are computed, by device, dtype and size.

`grouped_mm` is torch's kernel for all experts; `triton` our kernel for few tokens without
gradients; `triton_grouped` our kernel for many tokens where torch's would loop and synchronise;
`slots` pads every expert to the maximum number of rows, for few tokens only; `segments` computes
one expert after the other and reads the row counts, which synchronises an accelerator once per
call. The others never synchronise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from torchbridge.kernels import REGISTRY, Kernel, Request
from torchbridge.kernels.registry import autocast_dtype, autocast_on, hardware_of
from torchbridge.kernels.tiles import FEW_ROWS, rows_variant


@dataclass(frozen=True, slots=True)
class Path:
    """How the experts were computed.

    `fallback` says why not by the device's best path; `synchronises`: the device was synchronised.
    """

    name: str
    fallback: str | None = None
    synchronises: bool = False

    def __str__(self) -> str:
        return self.name if self.fallback is None else f"{self.name} ({self.fallback})"


@dataclass(frozen=True, slots=True)
class Batch:
    """Description of a call: T tokens for k experts each; `gradient`: it will be differentiated.

    `dtype` is that of the products. `spread`: the experts are distributed over processes, so a path
    must take rows, not tokens.
    """

    device: torch.device
    dtype: torch.dtype
    tokens: int
    top_k: int
    gradient: bool = False
    spread: bool = False

    @classmethod
    def from_tensors(
        cls, x: Tensor, weights: Tensor | None, top_k: int, bank: nn.Module, *, spread: bool = False
    ) -> Batch:
        """Return the Batch of a call of `bank`'s experts with tokens x [T, d].

        `weights` [T, k] are the weights of the experts' outputs; None if they are not weighted.
        """
        gradient = wants_gradient(bank, x, weights)
        dtype = autocast_dtype(x) or x.dtype
        return cls(x.device, dtype, x.shape[0], top_k, gradient, spread)

    @property
    def on_host(self) -> bool:
        """Whether reading a tensor's values needs no synchronisation."""
        return self.device.type == "cpu"


EXPORTED = "exported: of a program the sizes may not be values, so every expert has every row"


def exported() -> bool:
    """Return whether torch.export, an ONNX export or a trace is running."""
    writing = torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
    return writing or torch.jit.is_tracing()


Refusals = Mapping[str, Callable[[], str | None]]


def choose(batch: Batch, dispatch: str, refusals: Refusals) -> Path:
    """Return the first path of `refusals` (path -> reason, or None) that has no reason, else
    segments.

    "auto" is segments on the CPU, where one product per expert is as fast, and slots under export.
    A path requested by name is used or refused, never replaced.

    Raises:
        RuntimeError: the path requested by `dispatch` cannot be used.
    """
    if dispatch == "auto" and exported():
        return Path("slots", EXPORTED)
    if dispatch == "segments" or (dispatch == "auto" and batch.on_host):
        return Path("segments", synchronises=not batch.on_host)
    reasons = []
    for name in refusals if dispatch == "auto" else (dispatch,):
        reason = refusals[name]()
        if reason is None:
            worse = name == "slots" and dispatch == "auto"  # computes more than it must
            return Path(name, "; ".join(reasons) if worse else None)
        reasons.append(reason)
    if dispatch != "auto":
        raise RuntimeError(f"dispatch {dispatch!r} cannot be used: {reasons[0]}; use 'auto'")
    reasons.append("one wait for the device per call")
    return Path("segments", "; ".join(reasons), synchronises=True)


def why_no_slots(batch: Batch) -> str | None:
    """Return why slots are not worthwhile, or None; every expert computes one row per token."""
    if batch.spread:
        return "slots need all experts in one process"
    if batch.tokens > FEW_ROWS:
        return f"slots are for {FEW_ROWS} tokens at most; these are {batch.tokens}"
    return None


def wants_gradient(bank: nn.Module, *inputs: Tensor | None) -> bool:
    """Return whether the outputs of `bank` for these inputs will be differentiated."""
    if not torch.is_grad_enabled():
        return False
    return any(t.requires_grad for t in (*inputs, *bank.parameters()) if t is not None)


def why_no_kernel(
    batch: Batch, num_experts: int, *weights: Tensor | None, by_name: bool = False
) -> str | None:
    """Return why the Triton kernel for experts cannot compute the batch, or is slower; None
    if neither.

    It depends on the memory layout of the `weights`. If requested `by_name` it may be slower.
    """
    if batch.spread:
        return "triton needs all experts in one process"
    if torch.compiler.is_compiling() or autocast_on(batch.device.type):
        return "triton takes tensors as they are, neither traced nor under autocast"
    variant = rows_variant(batch.tokens * batch.top_k, num_experts, None, *weights)
    return _objection(triton_kernel(), batch, variant, by_name)


def why_no_grouped_kernel(
    batch: Batch, up: Tensor, down: Tensor, *, by_name: bool = False
) -> str | None:
    """Return why the grouped product in Triton cannot compute the batch, or is slower; or None."""
    if torch.compiler.is_compiling():
        return "triton_grouped is not traced"
    given = (None, up, down) if up.dtype == down.dtype else (up, down)
    variant = rows_variant(1, 1, *given)
    return _objection(triton_kernel("grouped_mm"), batch, variant, by_name)


def _objection(kernel: Kernel, batch: Batch, variant: str, by_name: bool) -> str | None:
    name = "triton" if kernel.operation == "moe_experts" else "triton_grouped"
    if batch.device.type == "meta":
        return f"{name} needs tensors with values"
    request = Request(hardware_of(batch.device), batch.dtype, batch.gradient, variant)
    reason = kernel.refusal(request) if by_name else kernel.objection(request)
    return reason and f"{name} {reason}"


@cache
def triton_kernel(operation: str = "moe_experts") -> Kernel:
    """Return the registry's Triton kernel of an operation."""
    (kernel,) = (one for one in REGISTRY.kernels(operation) if one.name == "triton")
    return kernel
