"""Recording on a device: the order of the calls of CUDA, and what is refused."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from suites.numerics import needs_cuda
from torchbridge.graphs import CudaGraphs, why_no_graphs


class _Cuda:
    """A fake of torch.cuda that logs the calls of `CudaGraphs`; `failure` makes recordings fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: str = "") -> None:
        self.log: list[str] = []
        self.failure = failure
        self.current, self.made = _Stream(self, "current"), 0
        for name in ("current_stream", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(torch.cuda, "Stream", self._new)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=self._replay))

    def _new(self, device: torch.device) -> _Stream:
        self.made += 1
        return _Stream(self, f"own {self.made}")

    def _current_stream(self, device: torch.device) -> _Stream:
        return self.current

    def _replay(self) -> None:
        self.log.append("replay")

    @contextlib.contextmanager
    def _stream(self, stream: _Stream):
        self.log.append(f"enter {stream.name}")
        yield
        self.log.append(f"leave {stream.name}")

    @contextlib.contextmanager
    def _graph(self, graph, stream: _Stream, pool: str, capture_error_mode: str):
        self.log.append(f"record on {stream.name} into {pool}, {capture_error_mode}")
        yield
        if self.failure:
            raise RuntimeError(self.failure)


class _Stream:
    """A fake of a stream that logs which stream it waits for."""

    def __init__(self, cuda: _Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: _Stream) -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")


class TestCudaGraphs:
    """`CudaGraphs` records as torch's notes on whole-network capture require."""

    def test_warms_up_aside_and_records_on_the_same_stream(self, monkeypatch):
        cuda = _Cuda(monkeypatch)
        graphs = CudaGraphs(torch.device("cuda", 0))
        with graphs.aside():
            cuda.log.append("work")
        replay, outputs = graphs.record(lambda: cuda.log.append("work") or torch.zeros(1))
        replay()
        assert cuda.log == [
            "own 1 waits for current",
            "enter own 1",
            "work",
            "leave own 1",
            "current waits for own 1",
            "record on own 1 into pool, thread_local",
            "work",
            "replay",
        ]
        assert outputs.item() == 0

    def test_what_cannot_be_recorded_is_told(self, monkeypatch):
        _Cuda(monkeypatch, "operation not permitted when stream is capturing")
        with pytest.raises(RuntimeError, match=r"no CUDA graph .* of it: operation not perm"):
            CudaGraphs(torch.device("cuda", 0)).record(tuple)

    def test_other_devices_have_none(self):
        assert why_no_graphs(torch.device("cuda", 1)) is None
        assert why_no_graphs(torch.device("cpu")) == "a CUDA graph needs a CUDA device, not cpu"

    @needs_cuda()
    def test_a_replay_repeats_the_work_alone(self, device):
        graphs, x, runs = CudaGraphs(device), torch.ones(4, device=device), []

        def work() -> torch.Tensor:
            runs.append(1)
            return x.mul(2).add_(1)

        with graphs.aside():
            work()
        replay, output = graphs.record(work)
        for value in (3.0, 5.0):
            x.fill_(value)
            replay()
            assert output.tolist() == [2 * value + 1] * 4
        assert len(runs) == 2
