"""A fake of `torch_xla` on the CPU, with its names, its counters and the types of its results.

Operations run immediately, so all numbers are the CPU's. Inside `lazily()` they are also recorded:
the operations between two steps form a graph, and each new graph counts as a compilation, as in the
real module. `stand_in()` returns the adapter that uses the fake.
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
COMPILE_SECONDS = 0.25  # simulated time of a compilation
LIMIT, USED, PEAK = 16 * 2**30, 3 * 2**30, 5 * 2**30  # bytes


class Recorder(TorchDispatchMode):
    """Records each operation on tensors: its name, and its arguments' shapes and dtypes."""

    def __init__(self, graph: list[Any]) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Record the operation, then run it."""
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if given:  # operations without tensors run on the host
            self.graph.append((str(func), tuple((tuple(x.shape), x.dtype) for x in given)))
        return func(*args, **(kwargs or {}))


class FakeXLA:
    """The fake module in process 0 of `world`; process n has (n + 1) times the tensors of 0."""

    def __init__(self, *, world: int = 1, hardware: str = "TPU", kind: str = "TPU v5 lite") -> None:
        self.world, self.hardware, self.kind = world, hardware, kind
        self.precision = "default"
        self.steps = self.compilations = self.waits = 0
        self._graph: list[Any] = []
        self._known: set[tuple[Any, ...]] = set()

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """Record operations as a lazy device does, which computes them at the next step.

        Operations after the last step are dropped at the end: they are the host's work on results.
        """
        with Recorder(self._graph):
            yield
        self._graph.clear()

    def step(self, wait: bool = False) -> None:
        """End the recorded graph; count a compilation if the graph is new."""
        del wait
        graph, self.steps = tuple(self._graph), self.steps + 1
        self._graph.clear()
        if graph and graph not in self._known:
            self._known.add(graph)
            self.compilations += 1

    def metric_data(self, name: str) -> tuple[int, float, list[Any]] | None:
        """Return (samples, their sum in nanoseconds, []) for "CompileTime", or None."""
        if name != "CompileTime" or not self.compilations:
            return None
        return self.compilations, self.compilations * COMPILE_SECONDS * 1e9, []

    def set_precision(self, precision: str) -> None:
        """Set the precision of products of float32 numbers."""
        assert precision in ("default", "high", "highest")
        self.precision = precision

    def all_reduce(self, kind: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all simulated processes: 1 + 2 + ... + world times `tensor`."""
        assert kind == "sum"
        return tensor * (self.world * (self.world + 1) / 2)

    def wait_device_ops(self) -> None:
        """Count the call; no operation is ever pending."""
        self.waits += 1


def stand_in(fake: FakeXLA | None = None) -> XLA:
    """Return an adapter on the fake, with the names of torch_xla 2.9."""
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
    """Return the real adapter on a TPU, else one on the fake."""
    try:
        real = load()
    except XLANotAvailable:
        return stand_in()
    return real if real.is_tpu else stand_in()
