"""A stand-in for CUDA graphs on any device: what a step does is written down, then done again.

Like a graph it keeps what Python had worked out when it was recorded (numbers, shapes, memory), and
repeats only the operators, from the same tensors to the same tensors. Recording leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Outputs = tuple[Tensor, ...]
Call = tuple[Any, tuple, dict, Any]  # an operator, what it was given, what came out


@torch.no_grad()
def run_again(calls: list[Call]) -> None:
    """The operators once more, their outputs where they were."""
    for func, args, kwargs, outputs in calls:
        again = tree_leaves(func(*args, **kwargs))
        for old, new in zip(tree_leaves(outputs), again, strict=True):
            if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                old.copy_(new)


class _Tape(TorchDispatchMode):
    """Runs operators and writes them down; what they overwrite is kept as it was before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.made: list[Tensor] = []  # held, so that no memory is used twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = func._schema.arguments  # noqa: SLF001
        named = dict(zip((a.name for a in schema), args, strict=False)) | kwargs
        for argument in schema:
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(named.get(argument.name))
        out = func(*args, **kwargs)
        self.made += [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.calls.append((func, args, kwargs, out))
        return out

    def _keep(self, written: Any) -> None:
        for tensor in tree_leaves(written):
            if isinstance(tensor, Tensor):
                pointer = tensor.untyped_storage().data_ptr()
                whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
                self.before.setdefault(pointer, (whole, whole.clone()))


class TapeRecorder:
    """What `CudaRecorder` is, on the CPU. `asides` and `recordings` count its calls."""

    def __init__(self) -> None:
        self.asides = self.recordings = 0

    def aside(self, work: Callable[[], Outputs]) -> Outputs:
        """There are no streams: `work` as it is."""
        self.asides += 1
        return work()

    def record(self, work: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        """How to repeat what `work` did, which is undone: memory and random numbers as before."""
        self.recordings += 1
        state = torch.get_rng_state()
        with _Tape() as tape:
            outputs = work()
        for whole, kept in tape.before.values():
            whole.copy_(kept)
        torch.set_rng_state(state)
        for output in outputs:
            output.fill_(torch.nan)  # nothing was computed yet

        return partial(run_again, tape.calls), outputs
