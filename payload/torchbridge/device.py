"""Choose a device by trying it, synchronise it and describe it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch

_VARIABLE = "TORCHBRIDGE_DEVICE"


def pick_device() -> torch.device:
    """Return the accelerator of this machine, or the CPU; `TORCHBRIDGE_DEVICE` overrides the
    choice.

    Raises:
        RuntimeError: the device cannot be used, or computes wrongly.
    """
    wanted = os.environ.get(_VARIABLE)
    if wanted:
        return _proven(torch.device(wanted))
    for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
        if module.is_available():
            return _proven(torch.device(kind, module.current_device()))
    if os.environ.get("PJRT_DEVICE") == "TPU":  # set for a process with a chip
        return _proven(torch.device("xla"))
    return torch.device("cpu")


def _proven(device: torch.device) -> torch.device:
    """Return `device` after it has added numbers correctly. Raises RuntimeError otherwise."""
    try:
        if device.type == "xla":
            import_module("torch_xla")  # registers the device in torch
        works = (torch.ones(2, device=device) + 1).sum().item() == 4
    except (ImportError, RuntimeError, AssertionError) as error:
        raise RuntimeError(f"device {device} cannot be used: {error}") from error
    if not works:
        raise RuntimeError(f"device {device} computes 1 + 1 wrongly")
    return device


def synchronise(device: torch.device) -> None:
    """Wait until all work queued on `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "xpu":
        torch.xpu.synchronize(device)
    elif device.type == "xla":
        import_module("torch_xla").sync(wait=True)  # runs the graph that was recorded, too


@contextmanager
def reporting_waits(device: torch.device, mode: str) -> Iterator[None]:
    """Make CUDA report ("warn" or "error") host synchronisation in the block; nothing elsewhere."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def describe(device: torch.device) -> str:
    """Describe device, torch version and, for a CPU, the threads in one line."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gib = properties.total_memory / 2**30
        name = f"{properties.name} (sm_{properties.major}{properties.minor}, {gib:.1f} GiB)"
    elif device.type == "xpu":
        name = torch.xpu.get_device_name(device)
    elif device.type == "xla":
        name = f"TPU {os.environ.get('TPU_ACCELERATOR_TYPE', 'of unknown type')}"
    else:
        name = f"CPU, {torch.get_num_threads()} threads"
    return f"{device}: {name}, torch {torch.__version__}"
