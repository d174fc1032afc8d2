"""Fakes of CUDA graphs for any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchbridge.graphs import Replay

T = TypeVar("T")
ASKS_THE_HOST = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal")


class _Tape(TorchDispatchMode):
    """Runs and records operators; keeps a copy of the memory that they overwrite."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []  # operator, arguments, outputs
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.made: list[Tensor] = []  # kept, so that their memory is not reused

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in ASKS_THE_HOST:
            raise RuntimeError(f"{name} asks the host: it cannot be captured")
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

    def undo(self) -> None:
        """Restore the memory that the operators overwrote."""
        for whole, kept in self.before.values():
            whole.copy_(kept)

    @torch.no_grad()
    def run_again(self) -> None:
        """Run the operators again, with their outputs in the same memory."""
        for func, args, kwargs, outputs in self.calls:
            again = tree_leaves(func(*args, **kwargs))
            for old, new in zip(tree_leaves(outputs), again, strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class TapeGraphs:
    """A fake of CUDA graphs that records operators and runs them again.

    As a graph, it keeps the results of Python code from the recording (numbers, shapes, memory) and
    repeats only the operators, on the same tensors. Recording changes no memory, and work that
    reads a number on the host cannot be recorded. `asides` and `recordings` count calls; `replayed`
    has the number of the recording of each replay.
    """

    def __init__(self) -> None:
        self.asides = self.recordings = 0
        self.replayed: list[int] = []

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the call; there are no streams."""
        self.asides += 1
        yield

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """Record `work`, undo its changes to memory and random state; return (replay, outputs)."""
        state = torch.get_rng_state()
        with _Tape() as tape:
            outputs = work()
        tape.undo()
        torch.set_rng_state(state)
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor):
                output.fill_(torch.nan)  # a recording computes no values
        return self._counted(tape.run_again), outputs

    def _counted(self, again: Callable[[], object]) -> Replay:
        number = self.recordings
        self.recordings += 1

        def replay() -> None:
            self.replayed.append(number)
            again()

        return replay


class RepeatedGraphs(TapeGraphs):
    """A fake that calls the work again, for work that cannot be recorded as operators."""

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """Run `work` once for its outputs; return (replay, outputs)."""
        outputs = work()

        def again() -> None:
            for old, new in zip(tree_leaves(outputs), tree_leaves(work()), strict=True):
                if isinstance(old, Tensor):
                    old.copy_(new)

        return self._counted(again), outputs
