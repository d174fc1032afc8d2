"""How the experts of a call are computed: the best way that its device, dtype and size allow.

`grouped_mm` is torch's kernel for all experts; `triton` one of ours, for few tokens without
gradients; `triton_grouped` one of ours for many, where torch's would loop and wait; `slots` gives
every expert as many rows as any could get, which pays for few tokens only; `segments` multiplies
one expert's rows after the other's, and asks how many they are: on the CPU that costs nothing, on
an accelerator the host waits for it once per call. The others never wait.
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
    """How the experts were computed; `fallback` says why not in the device's best way.

    `asks_host`: the host waited for the device.
    """

    name: str
    fallback: str | None = None
    asks_host: bool = False

    def __str__(self) -> str:
        return self.name if self.fallback is None else f"{self.name} ({self.fallback})"


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be computed: T tokens for k experts each; `gradient`: it will be differentiated.

    `dtype` is of the numbers that are multiplied. `spread`: the experts are spread over processes,
    so a way must take rows, not tokens.
    """

    device: torch.device
    dtype: torch.dtype
    tokens: int
    top_k: int
    gradient: bool = False
    spread: bool = False

    @classmethod
    def of(
        cls, x: Tensor, weights: Tensor | None, top_k: int, bank: nn.Module, *, spread: bool = False
    ) -> Batch:
        """x [T, d] for experts of `bank`, whose outputs are weighted [T, k]."""
        gradient = wants_gradient(bank, x, weights)
        dtype = autocast_dtype(x) or x.dtype
        return cls(x.device, dtype, x.shape[0], top_k, gradient, spread)

    @property
    def on_host(self) -> bool:
        """Is asking a tensor for its values free?"""
        return self.device.type == "cpu"


EXPORTED = "exported: of a program the sizes may not be values, so every expert has every row"


def exported() -> bool:
    """Is a program being written down, by torch.export, to ONNX or by a trace?"""
    writing = torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
    return writing or torch.jit.is_tracing()


Refusals = Mapping[str, Callable[[], str | None]]


def choose(batch: Batch, dispatch: str, refusals: Refusals) -> Path:
    """The first of `refusals` (way -> its reason not to be taken, or None), else segments.

    On the CPU "auto" is segments: a matrix product per expert is as fast there; where a program is
    written down it is slots, of any number of tokens. Asked for by name, a way is used or refused,
    never replaced.

    Raises:
        RuntimeError: `dispatch` names a way that cannot be used.
    """
    if dispatch == "auto" and exported():
        return Path("slots", EXPORTED)
    if dispatch == "segments" or (dispatch == "auto" and batch.on_host):
        return Path("segments", asks_host=not batch.on_host)
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
    return Path("segments", "; ".join(reasons), asks_host=True)


def why_no_slots(batch: Batch) -> str | None:
    """Why slots are not worth it: every expert computes as many rows as there are tokens."""
    if batch.spread:
        return "slots need all experts in one process"
    if batch.tokens > FEW_ROWS:
        return f"slots are for {FEW_ROWS} tokens at most; these are {batch.tokens}"
    return None


def wants_gradient(bank: nn.Module, *inputs: Tensor | None) -> bool:
    """Will what `bank` makes of the inputs be differentiated?"""
    if not torch.is_grad_enabled():
        return False
    return any(t.requires_grad for t in (*inputs, *bank.parameters()) if t is not None)


def why_no_kernel(
    batch: Batch, num_experts: int, *weights: Tensor | None, by_name: bool = False
) -> str | None:
    """Why the registry's Triton kernel for experts cannot serve, or is not worth it.

    It depends on how the `weights` lie in memory. Asked for `by_name` it need not be worth it.
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
    """Why the registry's grouped product in Triton cannot serve, or is not worth it."""
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
    """The registry's kernel in Triton: for experts at once, from tokens to output, or grouped."""
    (kernel,) = (one for one in REGISTRY.kernels(operation) if one.name == "triton")
    return kernel
