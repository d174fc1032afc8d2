"""Buffers that follow a module to another device, but never to another dtype."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class PinnedDtypes(nn.Module):
    """`.half()` and `.to(dtype)` leave the buffers named in `pinned` as they are.

    float8 numbers would grow, and scales leave the range of float16.
    """

    pinned: tuple[str, ...] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        before = {name: getattr(self, name) for name in self.pinned}
        super()._apply(fn, recurse)
        for name, old in before.items():
            moved = getattr(self, name)
            if moved is not None and moved.dtype != old.dtype:
                setattr(self, name, old.to(moved.device))
        return self
