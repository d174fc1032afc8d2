"""Training against AdamW in float64: accumulation, clipping, scaling, resumption, host waits."""

from __future__ import annotations

import dataclasses
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from suites.numerics import assert_close
from suites.train_reference import (
    BF16,
    FP16,
    NO_AMP,
    batches,
    network,
    problem,
    train_by_hand,
    weights,
)
from torchbridge.train import TensorBatches, TrainConfig, Trainer, fit, learning_rate, why_not_fused
from torchbridge.train.data import send
from torchbridge.train.watch import Watch, record_synchronisations

CPU = torch.device("cpu")
ALL = pytest.mark.parametrize("hardware", [NO_AMP, BF16, FP16], ids=["float32", "bf16", "fp16"])
PLAIN = {"hardware": NO_AMP}


class TestAgainstFormulas:
    @pytest.mark.parametrize(
        "settings",
        [
            {"weight_decay": 0.0},
            {"weight_decay": 0.1},
            {"weight_decay": 0.1, "fused": False},
            {"schedule": "linear", "warmup_steps": 5},
            {"schedule": "cosine", "warmup_steps": 5, "fused": False},
            {"clip_norm": 0.05},
            {"clip_norm": 0.3, "fused": False},
            {"clip_norm": 1e3},
        ],
        ids=str,
    )
    def test_losses_and_weights(self, device, settings):
        config = TrainConfig(epochs=2, learning_rate=2e-2, **settings)
        model = network()
        result = fit(model, batches(device), config, device=device, **PLAIN)
        rates = [learning_rate(config, step, 16) for step in range(16)]
        how = {"decay": config.weight_decay, "clip": config.clip_norm or math.inf}
        losses, expected = train_by_hand(network(), batches(device), rates, **how)
        wanted = why_not_fused(device) if config.fused is None else "not asked for"
        assert result.unfused == wanted
        assert result.losses == pytest.approx(losses, rel=1e-4)
        for parameter, value in zip(model.parameters(), expected, strict=True):
            assert_close(parameter, value, 1e-3)


class TestAccumulation:
    @pytest.mark.parametrize(("size", "accumulate"), [(32, 2), (16, 4), (8, 8), (64, 1)])
    def test_equals_the_large_batch(self, device, size, accumulate):
        config = TrainConfig(epochs=4, learning_rate=1e-2, clip_norm=0.5)
        large, small = network(), network()
        wanted = fit(large, batches(device, 64), config, device=device, **PLAIN)
        config = dataclasses.replace(config, accumulate=accumulate)
        got = fit(small, batches(device, size), config, device=device, **PLAIN)
        assert got.losses == pytest.approx(wanted.losses, rel=1e-4)
        assert got.gradient_norms == pytest.approx(wanted.gradient_norms, rel=1e-4)
        for a, b in zip(small.parameters(), large.parameters(), strict=True):
            assert_close(a, b, 1e-4)

    def test_unequal_batches_count_by_their_samples(self, device):
        x, y = problem(device, 50)
        config = TrainConfig(learning_rate=1e-2, accumulate=3)
        large, small = network(), network()
        fit(large, TensorBatches(x, y, 50), TrainConfig(learning_rate=1e-2), device=device, **PLAIN)
        fit(small, TensorBatches(x, y, 20), config, device=device, **PLAIN)  # 20, 20 and 10
        for a, b in zip(small.parameters(), large.parameters(), strict=True):
            assert_close(a, b, 1e-4)


class TestClipping:
    @pytest.mark.parametrize("hardware", [NO_AMP, FP16], ids=["float32", "float16"])
    def test_norms(self, device, hardware):
        """The reported norm is unscaled and from before clipping; the norm used is the limit."""
        x, y = problem(device, 64)
        reference = network().to(device)
        F.cross_entropy(reference(x), y).backward()
        squares = sum(p.grad.double().square().sum().item() for p in reference.parameters())
        model = network()
        config = TrainConfig(clip_norm=0.01)
        trainer = Trainer(model, config, device=device, hardware=hardware)
        trainer.step([(x, y)])
        norm = trainer.result().gradient_norms[0]
        assert norm == pytest.approx(math.sqrt(squares), rel=1e-4 if hardware is NO_AMP else 2e-2)
        used = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
        assert used == pytest.approx(0.01, rel=1e-3)


class TestScaling:
    def trainer(self, device, clip: float | None = None) -> Trainer:
        """Return a trainer that computes in float16 with loss scaling."""
        config = TrainConfig(learning_rate=1e-2, clip_norm=clip)
        return Trainer(network(), config, device=device, hardware=FP16)

    def test_losses_are_not_scaled(self, device):
        trainer = self.trainer(device)
        x, y = problem(device, 64)
        expected = F.cross_entropy(network().to(device)(x), y).item()
        trainer.step([(x, y)])
        assert trainer.scaler.get_scale() == 65536.0
        assert trainer.result().losses[0] == pytest.approx(expected, rel=2e-3)

    def test_small_gradients_survive(self, device):
        x, y = problem(device, 64)
        trainer = self.trainer(device)
        tiny = lambda logits, targets: 1e-6 * F.cross_entropy(logits, targets)  # noqa: E731
        trainer.loss = tiny
        before = weights(trainer.model)
        trainer.step([(x, y)])
        for old, new in zip(before, trainer.model.parameters(), strict=True):
            assert ((new - old).abs() > 1e-4).double().mean().item() > 0.5  # Adam's steps: the rate

    @pytest.mark.parametrize("clip", [None, 1.0])
    def test_overflow_skips_the_step(self, device, clip):
        trainer = self.trainer(device, clip)
        x, y = problem(device, 64)
        trainer.step([(x, y)])
        before, scale = weights(trainer.model), trainer.scaler.get_scale()
        trainer.step([(x * 1e6, y)])  # beyond float16
        assert all(
            torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True)
        )
        assert trainer.scaler.get_scale() == scale / 2
        trainer.step([(x, y)])
        assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
        assert not torch.equal(before[0], next(trainer.model.parameters()))

    def test_only_float16_is_scaled(self, device):
        for hardware in (NO_AMP, BF16):
            trainer = Trainer(network(), TrainConfig(), device=device, hardware=hardware)
            assert trainer.scaler.is_enabled() is False
        assert self.trainer(device).scaler.is_enabled() is True


class TestResumption:
    CONFIG = TrainConfig(
        epochs=4, learning_rate=1e-2, clip_norm=1.0, schedule="cosine", warmup_steps=3, seed=5
    )

    @ALL
    @pytest.mark.parametrize("stop_at", [1, 8, 13, 31])
    def test_equals_uninterrupted(self, device, tmp_path, hardware, stop_at):
        """A resumed run equals an uninterrupted one bit for bit, with dropout and shuffling."""
        options = {"config": self.CONFIG, "hardware": hardware, "device": device}
        whole = network(0.3)
        expected = fit(whole, batches(device, shuffled=True), **options)
        options["checkpoint_path"] = tmp_path / "run.pt"
        first = network(0.3)
        part = fit(first, batches(device, shuffled=True), **options, stop_at=stop_at)
        assert (part.steps, part.losses) == (stop_at, expected.losses[:stop_at])
        torch.manual_seed(31337)
        second = network(0.3, seed=99)  # the file has all of the state
        result = fit(second, batches(device, shuffled=True), **options)
        assert result.losses == expected.losses
        assert result.gradient_norms == expected.gradient_norms
        assert result.learning_rates == expected.learning_rates
        for a, b in zip(second.parameters(), whole.parameters(), strict=True):
            assert torch.equal(a, b)

    def test_finished_stays_finished(self, device, tmp_path):
        options = {"config": self.CONFIG, "device": device, "checkpoint_path": tmp_path / "run.pt"}
        model, again = network(), network(seed=3)
        first = fit(model, batches(device), **options)
        assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
        second = fit(again, batches(device), **options)
        assert (second.losses, second.steps) == (first.losses, 32)
        assert all(
            torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
        )

    @pytest.mark.parametrize(
        ("change", "message"),
        [({"learning_rate": 0.5}, "learning_rate=0.01, not 0.5"), ({"epochs": 5}, "epochs=4")],
        ids=["learning_rate", "epochs"],
    )
    def test_another_config_is_refused(self, device, tmp_path, change, message):
        path = tmp_path / "run.pt"
        options = {"device": device, "checkpoint_path": path}
        fit(network(), batches(device), self.CONFIG, stop_at=3, **options)
        model = network(seed=1)
        before = weights(model.to(device))
        with pytest.raises(ValueError, match=message):
            fit(model, batches(device), dataclasses.replace(self.CONFIG, **change), **options)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    def test_another_precision_is_refused(self, device, tmp_path):
        options = {"device": device, "checkpoint_path": tmp_path / "run.pt"}
        fit(network(), batches(device), self.CONFIG, hardware=BF16, stop_at=3, **options)
        with pytest.raises(ValueError, match=r"precision=torch\.bfloat16, not None"):
            fit(network(), batches(device), self.CONFIG, hardware=NO_AMP, **options)


class TestCompile:
    def test_by_the_backend_with_the_same_losses(self, device):
        torch.compiler.reset()
        config, graphs = TrainConfig(epochs=2, learning_rate=1e-2), []

        def backend(graph: nn.Module, inputs: list[torch.Tensor]):
            graphs.append(graph)
            return graph.forward

        expected = fit(network(), batches(device), config, device=device, **PLAIN)
        config = dataclasses.replace(config, compile_backend=backend)
        got = fit(network(), batches(device), config, device=device, **PLAIN)
        assert got.losses == pytest.approx(expected.losses, rel=1e-5)
        assert got.gradient_norms == ()  # without clip_norm
        assert len(graphs) == 1  # all batches are of one shape


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
        with (
            warnings.catch_warnings(record=True) as others,
            record_synchronisations(torch.device("cuda")) as waits,
        ):
            for text in ("called a synchronizing CUDA operation", "of another kind") * 2:
                warnings.warn(text, stacklevel=1)
        assert waits == ["called a synchronizing CUDA operation"] * 2
        assert modes == ["warn", 0]
        assert {str(one.message) for one in others} == {"of another kind"}
        with record_synchronisations(CPU) as waits:
            torch.ones(1).item()
        assert (waits, len(modes)) == ([], 2)


class Unmoved(nn.Sequential):
    """A model that ignores `to`, because torch cannot move fake parameters."""

    def to(self, device: torch.device) -> Unmoved:
        return self


class TestNothingIsRead:
    """Training steps on fake tensors: they have no numbers, so reading one would fail."""

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
    """A fake of a tensor on the host, which records how it is pinned and copied."""

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
