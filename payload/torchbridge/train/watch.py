"""What a piece of work asks of the device, by operator, and where the host waits for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# operators whose result the host has to see before it can go on
WAITS = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal")
WAITS += ("aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::bincount")
WAITS += ("aten::unique_consecutive",)
COPIES = ("aten::copy_", "aten::_to_copy")  # from one device to another
INDEXED = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")


class Watch(TorchDispatchMode):
    """Counts `operators`, `flops` (of products, a multiply-add is two) and `bytes` that are read
    and written; `waits` names what makes the host wait, copies from and to it among them."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.flops = self.bytes = 0
        self.waits: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        copied = name in COPIES and len({t.device for t in (*given, *made)}) > 1
        if name in WAITS or copied or (name in INDEXED and _by_mask(args[1])):
            self.waits.add(name)
        self.operators += 1
        if not func.is_view:
            self.bytes += sum(t.nbytes for t in given) + sum(t.nbytes for t in made)
        if count := flop_registry.get(func.overloadpacket):
            self.flops += count(*args, **(kwargs or {}), out_val=out)
        return out


def _by_mask(indices: Any) -> bool:
    """Then how many there are has to be counted first."""
    return any(t.dtype in (torch.bool, torch.uint8) for t in tree_leaves(indices) if t is not None)
