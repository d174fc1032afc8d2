"""CUDA graphs, and ROCm's by the same names: work recorded once, then repeated by one launch.

Recording runs the work's Python and computes nothing. A replay repeats what the device was asked
for, from the same memory to the same memory. Before, the work runs some times *aside*, on the
stream that will record it: libraries make their handles, kernels are compiled, what stays is
allocated. https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")
Replay = Callable[[], object]


class Graphs(Protocol):
    """What records work; tests have one that needs no device."""

    def aside(self) -> AbstractContextManager[None]:
        """Where work runs before it is recorded, in order with what is queued."""

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """How to repeat `work`, and what it returned: tensors that a replay fills."""


class CudaGraphs:
    """Those of one device. They share memory, so no two are to be replayed at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # one stream for both: libraries that keep a handle per stream make it before the recording
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """On the recording's stream, between what is queued already and what comes."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*capturable=True")  # will be captured later
            yield
        current.wait_stream(self._stream)

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """Waits for the device once.

        Raises:
            RuntimeError: something in `work` cannot be recorded, such as a wait for the device,
                whose random numbers are unusable in this process from then on.
        """
        graph = torch.cuda.CUDAGraph()
        # a thread that loads batches may page-lock memory meanwhile
        mode = {"stream": self._stream, "pool": self._pool, "capture_error_mode": "thread_local"}
        try:
            with torch.cuda.graph(graph, **mode):
                outputs = work()
        except RuntimeError as error:
            raise RuntimeError(f"no CUDA graph can be recorded of it: {error}") from error
        return graph.replay, outputs


def why_no_graphs(device: torch.device) -> str | None:
    """Why nothing can be recorded on `device`; None where it can."""
    return None if device.type == "cuda" else f"a CUDA graph needs a CUDA device, not {device}"
