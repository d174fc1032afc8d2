"""One backend per accelerator vendor; `create_backend()` chooses the one of this machine."""

from __future__ import annotations

import importlib

import torch

from torchbridge.backends.backend import Backend, CPUBackend, OptimizationResult, Optimizer
from torchbridge.config import Config
from torchbridge.hardware import VENDORS, Hardware, probe

BACKENDS = {one.backend: one.kind for one in VENDORS.values()}  # name: class, in a module of it


def detect_best_backend(hardware: Hardware | None = None) -> str:
    """Return the name of the backend for `hardware`, by default for this machine's best device."""
    return VENDORS[(hardware or probe()).vendor].backend


def create_backend(
    name: str = "auto",
    config: Config | None = None,
    *,
    hardware: Hardware | None = None,
    device: torch.device | str | None = None,
) -> Backend:
    """Create a backend by name; `auto` chooses by `hardware`, or by this machine's best device.

    Raises:
        ValueError: the name is unknown.
    """
    if name == "auto":
        name = detect_best_backend(hardware)
    return backend_class(name)(config, hardware=hardware, device=device)


def list_available_backends() -> list[str]:
    """Return the names of the backends that have a device on this machine, best first."""
    return [name for name in BACKENDS if backend_class(name).find_devices()]


def backend_class(name: str) -> type[Backend]:
    """Return the class of a backend.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend must be auto or one of {', '.join(BACKENDS)}, got {name!r}")
    module = "backend" if name == "cpu" else name  # imported at first use
    return getattr(importlib.import_module(f"torchbridge.backends.{module}"), BACKENDS[name])
