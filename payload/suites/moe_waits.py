"""Finds out whether work would make a host wait for its device, without a device.

Tensors of the meta device have no values: whatever needs one raises. On the CPU the operators that
bring a value to the host, or whose output's size depends on values, are caught as they are called.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# of operators that an accelerator can only finish with the host's help
WAITING = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
    "aten::nonzero_numpy",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::_to_copy",  # to another device
    "aten::bincount",
    "aten::histc",
}
INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class Waits(TorchDispatchMode):
    """Collects in `found` the operators called inside that wait on an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if waits(function, args, kwargs):
            self.found.append(str(function))
        return function(*args, **kwargs)


def waits(function, args, kwargs) -> bool:
    """Does an operator called with these arguments need the host on an accelerator?"""
    name = function.name().partition(".")[0]
    if name == "aten::_to_copy":
        return kwargs.get("device") not in (None, args[0].device)
    if name in INDEXING:  # by a mask: as many rows as it has ones
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None
    return name in WAITING
