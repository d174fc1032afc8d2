"""What a step asks of the device: no number is read, batches are sent without waiting."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from suites.train_reference import BF16, FP16, NO_AMP
from torchbridge.train import TrainConfig, Trainer
from torchbridge.train.data import send
from torchbridge.train.watch import Watch, waiting

CPU = torch.device("cpu")
ALL = pytest.mark.parametrize("hardware", [NO_AMP, BF16, FP16], ids=["float32", "bf16", "fp16"])


class TestWatch:
    def test_copies_between_devices_are_seen(self):
        for work, copied in (
            (lambda: torch.ones(3).to("meta"), True),
            (lambda: torch.empty(3, device="meta").copy_(torch.ones(3)), True),
            (lambda: torch.ones(3).copy_(torch.zeros(3)), False),
            (lambda: torch.ones(3).to(torch.float64)[torch.tensor([0, 2])], False),
        ):
            with Watch() as watch:
                work()
            assert watch.copied is copied

    def test_what_cuda_says_of_waits_is_collected(self, monkeypatch):
        modes = []
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
        with warnings.catch_warnings(record=True) as others, waiting(torch.device("cuda")) as waits:
            for text in ("called a synchronizing CUDA operation", "of another kind") * 2:
                warnings.warn(text, stacklevel=1)
        assert waits == ["called a synchronizing CUDA operation"] * 2
        assert modes == ["warn", 0]
        assert {str(one.message) for one in others} == {"of another kind"}
        with waiting(CPU) as waits:
            torch.ones(1).item()
        assert (waits, len(modes)) == ([], 2)


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
