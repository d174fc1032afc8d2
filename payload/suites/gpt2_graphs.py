"""A stand-in for CUDA graphs on any device: the operators of some work, recorded, run again.

As a real one it knows nothing but memory: numbers of Python are those of the recording, and work
that asks the host for a number cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch.utils._python_dispatch import TorchDispatchMode

from suites.train_recorder import Call, run_again

ASKS_THE_HOST = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal")


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in ASKS_THE_HOST:
            raise RuntimeError(f"{name} asks the host: it cannot be captured")
        output = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, output))
        return output


class RecordedGraphs:
    """Records and counts: `replayed` names the recordings that were run, by their number."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed: list[int] = []

    def aside(self) -> AbstractContextManager:
        """There are no streams."""
        return nullcontext()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record `work`, which is run, as a real capture would not."""
        with _Recorder() as recorder:
            work()
        number = self.recorded
        self.recorded += 1

        def replay() -> None:
            self.replayed.append(number)
            run_again(recorder.calls)

        return replay


class RepeatedGraphs(RecordedGraphs):
    """Calls the work again: torch.compile does not work under a recorder."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """`work` itself, which is not run."""
        return work
