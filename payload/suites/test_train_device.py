"""What a step asks of the device: no number is read, batches are sent without waiting, streams."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from suites.train_reference import BF16, FP16, NO_AMP
from torchbridge.train import TrainConfig, Trainer
from torchbridge.train.data import send
from torchbridge.train.graphed import CudaRecorder
from torchbridge.train.watch import Watch

CPU = torch.device("cpu")
ALL = pytest.mark.parametrize("hardware", [NO_AMP, BF16, FP16], ids=["float32", "bf16", "fp16"])


class TestWatch:
    def test_names_what_makes_the_host_wait(self):
        x = torch.ones(3)
        for work, name in (
            (lambda: x.sum().item(), "aten::_local_scalar_dense"),
            (lambda: float(x[0]), "aten::_local_scalar_dense"),
            (lambda: bool(x.sum() > 0), "aten::_local_scalar_dense"),
            (x.nonzero, "aten::nonzero"),
            (lambda: x[x > 0], "aten::index"),
            (lambda: x.index_put_((x > 0,), x[0]), "aten::index_put_"),
            (lambda: torch.masked_select(x, x > 0), "aten::masked_select"),
            (lambda: x.to("meta"), "aten::_to_copy"),  # to another device
        ):
            with Watch() as watch:
                work()
            assert watch.waits == {name}

    def test_a_copy_on_the_device_is_none(self):
        with Watch() as watch:
            torch.ones(3).copy_(torch.zeros(3))
            torch.ones(3).to(torch.float64)[torch.tensor([0, 2])].sum()
        assert watch.waits == set()


class Unmoved(nn.Sequential):
    """torch cannot move fake parameters; there is nowhere to move them to."""

    def to(self, device: torch.device) -> Unmoved:
        return self


class TestNothingIsRead:
    """A fake tensor has no numbers: whatever reads one fails."""

    @ALL
    @pytest.mark.parametrize("settings", [{}, {"clip_norm": 0.1}, {"accumulate": 2}], ids=str)
    def test_steps_of_fake_tensors(self, hardware, settings):
        config = TrainConfig(learning_rate=1e-2, schedule="cosine", **settings)
        with FakeTensorMode():
            model = Unmoved(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
            trainer = Trainer(model.train(), config, steps=3, hardware=hardware, device=CPU)
            batch = torch.empty(8, 20), torch.zeros(8, dtype=torch.int64)
            for _ in range(3):
                trainer.step([batch] * config.accumulate)
            assert len(trainer.losses) == 3
            with pytest.raises(DataDependentOutputException):
                trainer.losses[0].item()


class _Host:
    """A tensor of the host, that only says what is done with it."""

    device = CPU

    def __init__(self, pinned: bool) -> None:
        self.pinned, self.done = pinned, []

    def is_pinned(self) -> bool:
        return self.pinned

    def pin_memory(self) -> _Host:
        self.done.append("pin")
        return self

    def to(self, device: torch.device, non_blocking: bool) -> _Host:
        self.done.append((device.type, non_blocking))
        return self


class TestSending:
    def test_through_page_locked_memory_to_cuda(self):
        fresh, pinned, here = _Host(False), _Host(True), _Host(False)
        send(fresh, torch.device("cuda"))
        send(pinned, torch.device("cuda"))
        send(here, CPU)
        assert fresh.done == ["pin", ("cuda", True)]
        assert pinned.done == [("cuda", True)]
        assert here.done == [("cpu", True)]

    def test_on_the_device_it_is_the_tensor(self):
        x = torch.ones(2)
        assert send(x, CPU) is x


class _Cuda:
    """What `CudaRecorder` asks of torch.cuda, written down; a recording may be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: str = "") -> None:
        self.log: list[str] = []
        self.failure = failure
        self.current, self.made = _Stream(self, "current"), 0
        for name in ("current_stream", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(torch.cuda, "Stream", self._new)
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
    def _graph(self, graph, stream: _Stream, capture_error_mode: str):
        self.log.append(f"record on {stream.name}, {capture_error_mode}")
        yield
        if self.failure:
            raise RuntimeError(self.failure)


class _Stream:
    """Says whom it waits for."""

    def __init__(self, cuda: _Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: _Stream) -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")


class TestCudaRecorder:
    """The order of what it asks for, as the notes on whole-network capture have it."""

    def test_warms_up_aside_and_records_on_the_same_stream(self, monkeypatch):
        cuda = _Cuda(monkeypatch)
        recorder = CudaRecorder(torch.device("cuda", 0))
        done = recorder.aside(lambda: cuda.log.append("work") or (torch.ones(1),))
        replay, outputs = recorder.record(lambda: cuda.log.append("work") or (torch.zeros(1),))
        replay()
        assert cuda.log == [
            "own 1 waits for current",
            "enter own 1",
            "work",
            "leave own 1",
            "current waits for own 1",
            "record on own 1, thread_local",
            "work",
            "replay",
        ]
        assert (done[0].item(), outputs[0].item()) == (1, 0)

    def test_what_cannot_be_recorded_says_what_to_do(self, monkeypatch):
        _Cuda(monkeypatch, "operation not permitted when stream is capturing")
        recorder = CudaRecorder(torch.device("cuda", 0))
        message = (
            "cannot be recorded as a CUDA graph: operation not permitted .*; use graphed=False"
        )
        with pytest.raises(RuntimeError, match=message):
            recorder.record(tuple)
