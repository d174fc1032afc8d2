"""Select the kernel of an operation: the best one for hardware, dtype and use."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchbridge.hardware import Hardware, probe


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a kernel.

    `gradient`: its output will be differentiated. `variant` distinguishes requests that the other
    fields do not: for instance GELU's "none" (erf) and "tanh", or wide rows.
    """

    hardware: Hardware
    dtype: torch.dtype = torch.float32
    gradient: bool = False
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of an operation with its requirements; an empty set allows everything.

    `refuse` checks what the other fields cannot express: it returns None, or a reason to refuse.
    `yields` returns why another kernel is a better choice for a request that this one supports; by
    name this one can still be selected.
    """

    operation: str
    name: str
    run: Callable[..., Any]
    rank: int = 0  # of those that are not refused, the highest is taken
    vendors: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()  # of Hardware, all of them
    dtypes: frozenset[torch.dtype] = frozenset()
    differentiable: bool = True
    refuse: Callable[[Request], str | None] | None = None
    yields: Callable[[Request], str | None] | None = None

    def refusal(self, request: Request) -> str | None:
        """Return why it cannot serve `request`; None if it can."""
        for reason in (self._hardware(request.hardware), self._use(request)):
            if reason:
                return reason
        return self.refuse(request) if self.refuse else None

    def objection(self, request: Request) -> str | None:
        """Return why it is not chosen for `request`, refused or not; None if it may be."""
        return self.refusal(request) or (self.yields(request) if self.yields else None)

    def _hardware(self, hardware: Hardware) -> str | None:
        if self.vendors and hardware.vendor not in self.vendors:
            return f"needs {' or '.join(sorted(self.vendors))}; this is {hardware.vendor}"
        lacking = sorted(self.features - hardware.features)
        return f"needs {', '.join(lacking)} in hardware" if lacking else None

    def _use(self, request: Request) -> str | None:
        if self.dtypes and request.dtype not in self.dtypes:
            return f"does not compute {str(request.dtype).removeprefix('torch.')}"
        if request.gradient and not self.differentiable:
            return "has no backward"
        return None


class KernelRefused(LookupError):
    """No kernel, or not the requested one, can serve the request; the message gives the reasons."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected kernel, and the reasons by name of higher-ranked ones that were not."""

    kernel: Kernel
    refused: dict[str, str]


class KernelRegistry:
    """Kernels by operation; choices are cached until another kernel is registered."""

    def __init__(self) -> None:
        self.plain: dict[str, Kernel] = {}  # by operation the one of the lowest rank: the library's
        self._kernels: dict[str, dict[str, Kernel]] = {}
        self._choices: dict[tuple[str, Request], Choice] = {}

    def register(self, kernel: Kernel) -> Kernel:
        """Add a kernel.

        Raises:
            ValueError: the operation has a kernel of that name.
        """
        named = self._kernels.setdefault(kernel.operation, {})
        if kernel.name in named:
            raise ValueError(f"{kernel.operation} has a kernel {kernel.name!r} already")
        named[kernel.name] = kernel
        self.plain[kernel.operation] = self.kernels(kernel.operation)[-1]
        self._choices.clear()
        return kernel

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations, sorted."""
        return tuple(sorted(self._kernels))

    def kernels(self, operation: str) -> tuple[Kernel, ...]:
        """Return all kernels of an operation, best first; of equal rank, the first registered.

        Raises:
            KernelRefused: the operation is unknown.
        """
        if operation not in self._kernels:
            known = ", ".join(self.operations) or "none"
            raise KernelRefused(f"no operation {operation!r}; registered: {known}")
        return tuple(sorted(self._kernels[operation].values(), key=lambda one: -one.rank))

    def lookup(self, operation: str, request: Request) -> Choice:
        """Return the best kernel for a request.

        Raises:
            KernelRefused: the operation is unknown, or all of its kernels refuse.
        """
        key = (operation, request)
        if key not in self._choices:
            self._choices[key] = self._choose(operation, request)
        return self._choices[key]

    def named(self, operation: str, name: str, request: Request) -> Kernel:
        """Return the kernel of that name, without a substitute.

        Raises:
            KernelRefused: it is unknown, or cannot serve the request.
        """
        for kernel in self.kernels(operation):
            if kernel.name == name:
                reason = kernel.refusal(request)
                if reason:
                    raise KernelRefused(f"{operation}/{name}: {reason}")
                return kernel
        known = ", ".join(one.name for one in self.kernels(operation))
        raise KernelRefused(f"{operation} has no kernel {name!r}; it has: {known}")

    def _choose(self, operation: str, request: Request) -> Choice:
        refused: dict[str, str] = {}
        for kernel in self.kernels(operation):
            reason = kernel.objection(request)
            if reason is None:
                return Choice(kernel, refused)
            refused[kernel.name] = reason
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise KernelRefused(f"no kernel for {operation}: {reasons}")


REGISTRY = KernelRegistry()


@functools.cache
def hardware_of(device: torch.device) -> Hardware:
    """Return the hardware of `device`, cached."""
    return probe(device)


def kernel_for(
    operation: str,
    tensors: Sequence[Tensor | None],
    path: str = "auto",
    variant: str = "",
    *,
    ruled: bool = True,
) -> Kernel:
    """Return the kernel for these tensors; the first one determines device and dtype.

    `path` is a kernel's name, which is used or refused, or "auto" for the best. Under
    torch.compile, export and trace "auto" is the library's kernel, which they fuse, and also under
    autocast if autocast has rules for the operation (`ruled`).

    Raises:
        KernelRefused: the requested kernel cannot compute this on this device, or none can.
    """
    given = [one for one in tensors if one is not None]
    kind = given[0].device.type
    if path == "auto" and (traced() or (ruled and autocast_on(kind))):
        return REGISTRY.plain[operation]
    gradient = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    request = Request(hardware_of(given[0].device), given[0].dtype, gradient, variant)
    if path == "auto":
        return REGISTRY.lookup(operation, request).kernel
    return REGISTRY.named(operation, path, request)


def traced() -> bool:
    """Return whether a compiler or tracer runs; they fuse the library's operations."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def autocast_on(device: str) -> bool:
    """Return whether autocast is available and enabled on devices of this type."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype in which autocast multiplies x; None if it leaves x unchanged."""
    kind = x.device.type
    if x.dtype == torch.float64 or not autocast_on(kind):
        return None
    return torch.get_autocast_dtype(kind)


def first_words(error: Exception) -> str:
    """Return the first line of an error, without torch's speculation about its cause."""
    return str(error).splitlines()[0].partition(" This could be because")[0]


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return a context without autocast: products have the dtypes of their operands."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if autocast_on(kind) else contextlib.nullcontext()
