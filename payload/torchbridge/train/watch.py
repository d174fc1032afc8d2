"""Observe a step's operators, and effects that a replay of a CUDA graph would not repeat."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from torchbridge.device import reporting_waits

COPIES = ("aten::copy_", "aten::_to_copy")  # from one device to another


class Watch(TorchDispatchMode):
    """Count `operators`, `flops` of products and `bytes` read and written in the block.

    A multiply-add is two FLOPs; `copied` is set if something was copied between devices.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.flops = self.bytes = 0
        self.copied = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        if func.name().split(".")[0] in COPIES:
            self.copied |= len({t.device for t in (*given, *made)}) > 1
        self.operators += 1
        if not func.is_view:
            self.bytes += sum(t.nbytes for t in given) + sum(t.nbytes for t in made)
        if count := flop_registry.get(func.overloadpacket):
            self.flops += count(*args, **(kwargs or {}), out_val=out)
        return out


@contextmanager
def record_synchronisations(device: torch.device) -> Iterator[list[str]]:
    """Yield a list that receives the causes of synchronisation in the block, on CUDA.

    CUDA warns instead of raising, because an aborted step may have changed half of its weights.
    """
    waits: list[str] = []
    if device.type != "cuda":
        yield waits
        return
    with reporting_waits(device, "warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield waits
    for one in seen:
        if "synchronizing" in str(one.message):
            waits.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def host_random_state(device: torch.device) -> tuple[Any, ...]:
    """Return the random states of Python, NumPy (if loaded) and, for other devices, torch's CPU."""
    numpy: Any = sys.modules.get("numpy")
    kind, keys, *place = numpy.random.get_state() if numpy else ("", b"")
    own = () if device.type == "cpu" else tuple(torch.get_rng_state().tolist())
    return random.getstate(), kind, bytes(keys), tuple(place), own


@contextmanager
def restore_on_failure(device: torch.device) -> Iterator[None]:
    """Restore CUDA's random generator and stream after a failed capture in the block.

    torch ends such a capture without restoring them, and then cannot draw random numbers.
    """
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.current_stream(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    state = generator.clone_state()
    try:
        yield
    except RuntimeError:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(state)
        raise
