"""A stand-in for `torch_xla` on the CPU: its names, its counters, the shapes of its answers.

Operations run at once instead of being recorded, so all numbers are the CPU's. Inside `lazily()`
they are recorded too: what happened between two steps is a graph, and one that was not met before
counts as a compilation, as in the real module. `stand_in()` is the adapter in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchbridge.backends.errors import XLANotAvailable
from torchbridge.backends.xla import XLA, load

CPU = torch.device("cpu")
COMPILE_SECONDS = 0.25  # what each new graph pretends to have taken
LIMIT, USED, PEAK = 16 * 2**30, 3 * 2**30, 5 * 2**30  # bytes


class Recorder(TorchDispatchMode):
    """Writes down every operation on tensors: its name, and the shapes and dtypes it is given."""

    def __init__(self, graph: list[Any]) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Note the operation, then do it."""
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if given:  # what makes tensors out of nothing happens on the host
            self.graph.append((str(func), tuple((tuple(x.shape), x.dtype) for x in given)))
        return func(*args, **(kwargs or {}))


class FakeXLA:
    """The module. Of `world` pretended processes, number n holds n + 1 times ours."""

    def __init__(self, *, world: int = 1, hardware: str = "TPU", kind: str = "TPU v5 lite") -> None:
        self.world, self.hardware, self.kind = world, hardware, kind
        self.precision = "default"
        self.steps = self.compilations = self.waits = 0
        self._graph: list[Any] = []
        self._known: set[tuple[Any, ...]] = set()

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """Record operations, as on a device that computes at the next step.

        What no step has sent by the end was the host's work on results, and is forgotten.
        """
        with Recorder(self._graph):
            yield
        self._graph.clear()

    def step(self, wait: bool = False) -> None:
        """End a graph; one not met before is compiled."""
        del wait
        graph, self.steps = tuple(self._graph), self.steps + 1
        self._graph.clear()
        if graph and graph not in self._known:
            self._known.add(graph)
            self.compilations += 1

    def metric_data(self, name: str) -> tuple[int, float, list[Any]] | None:
        """(samples, their sum in nanoseconds, the samples); None before the first."""
        if name != "CompileTime" or not self.compilations:
            return None
        return self.compilations, self.compilations * COMPILE_SECONDS * 1e9, []

    def set_precision(self, precision: str) -> None:
        """Of products of float32 numbers."""
        assert precision in ("default", "high", "highest")
        self.precision = precision

    def all_reduce(self, kind: str, tensor: torch.Tensor) -> torch.Tensor:
        """1 + 2 + ... + world times what this process, the first, holds."""
        assert kind == "sum"
        return tensor * (self.world * (self.world + 1) / 2)

    def wait_device_ops(self) -> None:
        """Nothing is ever pending."""
        self.waits += 1


def stand_in(fake: FakeXLA | None = None) -> XLA:
    """The adapter in front of 2.9's names."""
    fake = fake or FakeXLA()
    told = {"bytes_used": USED, "bytes_limit": LIMIT, "peak_bytes_used": PEAK}
    runtime = SimpleNamespace(
        world_size=lambda: fake.world,
        global_ordinal=lambda: 0,
        device_type=lambda: fake.hardware,
    )
    backends = SimpleNamespace(
        get_mat_mul_precision=lambda: fake.precision, set_mat_mul_precision=fake.set_precision
    )
    model = SimpleNamespace(
        get_memory_info=lambda device: told,
        xla_device_kind=lambda device: fake.kind,
        all_reduce=fake.all_reduce,
        optimizer_step=lambda optimizer: optimizer.step(),  # the real one averages gradients first
        wait_device_ops=fake.wait_device_ops,
    )
    return XLA(
        SimpleNamespace(
            __version__="2.9.0",
            core=SimpleNamespace(xla_model=model),
            debug=SimpleNamespace(metrics=SimpleNamespace(metric_data=fake.metric_data)),
            runtime=runtime,
            backends=backends,
            device=lambda: CPU,
            devices=lambda: [CPU],
            sync=fake.step,
        )
    )


def here() -> XLA:
    """The real one where there is a TPU, the stand-in elsewhere."""
    try:
        real = load()
    except XLANotAvailable:
        return stand_in()
    return real if real.is_tpu else stand_in()
