"""Capture work in CUDA graphs (and ROCm's, by the same interface) and replay it by one launch.

Capturing runs the Python code and computes nothing; a replay reads and writes the same memory as
the capture. Beforehand the work is run a few times on the capture stream (`aside`), so that
libraries create handles, kernels are compiled and persistent memory is allocated.
https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
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
    """Interface for capturing work; tests implement it without a device."""

    def aside(self) -> AbstractContextManager[None]:
        """Return a context for work before its capture, ordered with the current stream."""

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """Capture `work`; return (replay function, outputs, overwritten by each replay)."""


class CudaGraphs:
    """CUDA graphs of one device; they share a memory pool, so do not replay two concurrently."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # one stream for both: libraries that keep a handle per stream make it before the recording
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run the block on the capture stream, after queued work and before later work."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*capturable=True")  # will be captured later
            yield
        current.wait_stream(self._stream)

    def record(self, work: Callable[[], T]) -> tuple[Replay, T]:
        """Capture one call of `work`; return (replay function, outputs, overwritten by each
        replay).

        Synchronises the device once.

        Raises:
            RuntimeError: `work` cannot be captured. CUDA random numbers are unusable afterwards.
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
    """Return why no graph can be captured on `device`, or None if it can."""
    return None if device.type == "cuda" else f"a CUDA graph needs a CUDA device, not {device}"
