"""FP8 training beyond the named suite: histories, the loss scale, checkpoints, other recipes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites import fp8_reference as ref
from suites.covering import pairwise
from suites.fp8_reference import mlp, task
from suites.numerics import assert_close
from suites.operators import READ, Operators
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import AmaxHistory, FP8Config, FP8Format, FP8LinearLayer, FP8TrainingEngine

pytestmark = pytest.mark.usefixtures("in_float8")

SIZES = [1.0, 3.0, 0.5, 8.0, 8.0, 0.25, 0.25, 0.25, 16.0, 1.0, 1.0]


def foreseen(sizes: list[float], length: int, newest_only: bool) -> list[float]:
    """Return the largest magnitude that delayed scaling assumes at each step.

    It is the maximum of the last `length` sizes, or the newest one.
    """
    out = []
    for step, size in enumerate(sizes):
        window = sizes[max(0, step - length) : step] or [size]
        out.append(window[-1] if newest_only else max(window))
    return out


class TestHistories:
    @pytest.mark.parametrize(
        ("algorithm", "length", "margin"), pairwise(["max", "most_recent"], [1, 3, 16], [0, 2])
    )
    def test_scales_of_steps(self, device, algorithm, length, margin):
        config = FP8Config(
            scaling="delayed", amax_history_len=length, margin=margin, amax_compute_algo=algorithm
        )
        history = AmaxHistory(FP8Format.E4M3, config, device)
        limit = ref.LIMITS[native_dtype(FP8Format.E4M3, device)]
        wanted = foreseen(SIZES, length, algorithm == "most_recent")
        for size, amax in zip(SIZES, wanted, strict=True):
            x = torch.tensor([0.1, -size], device=device)
            quantised = history.quantize(x, record=True)
            assert quantised.scale.item() == pytest.approx(limit / (amax * 2**margin), rel=1e-6)
            beyond = min(size, amax * 2**margin)
            assert_close(quantised.dequantize()[1], torch.tensor(-beyond), 0.07)

    def test_saturated_numbers_are_counted(self, device):
        config = FP8Config(scaling="delayed", margin=0, amax_history_len=4)
        history = AmaxHistory(FP8Format.E4M3, config, device)
        history.quantize(torch.ones(10, device=device), record=True)
        found = history.quantize(torch.arange(10.0, device=device) / 2, record=True)
        assert history.saturated.item() == 7  # 1.5 to 4.5 are over 1
        assert found.dequantize().max().item() == 1.0
        history.quantize(torch.arange(10.0, device=device) / 2, record=True)
        assert history.saturated.item() == 7  # the scale has adapted

    @pytest.mark.parametrize("bad", [float("inf"), float("nan")])
    def test_an_overflow_is_no_history(self, device, bad):
        history = AmaxHistory(FP8Format.E5M2, FP8Config(scaling="delayed", margin=0), device)
        for size in (2.0, bad, 1.0):
            found = history.quantize(torch.tensor([1.0, size], device=device), record=True)
            assert found.dequantize()[1].isfinite().item() == (size != bad and size == size)
        limit = ref.LIMITS[native_dtype(FP8Format.E5M2, device)]
        assert history.scale.item() == limit / 2
        assert history.amax[:3].tolist() == [1.0, 0.0, 2.0]

    def test_each_role_has_its_own(self, device):
        config = FP8Config(scaling="delayed", margin=0)
        layer = FP8LinearLayer(16, 16, bias=False, config=config, device=device)
        x = torch.full((4, 16), 3.0, device=device)
        layer(x).backward(torch.full((4, 16), 5.0, device=device))
        newest = {role: one.amax[0].item() for role, one in layer.histories.items()}
        weight = layer.weight.abs().max().item()
        assert newest == {"input": 3.0, "weight": pytest.approx(weight), "gradient": 5.0}
        assert [one.amax[1].item() for one in layer.histories.values()] == [0, 0, 0]  # once each

    def test_looking_leaves_no_history(self, device):
        layer = FP8LinearLayer(16, 16, config=FP8Config(scaling="delayed"), device=device)
        layer.get_fp8_info()
        assert layer.histories["weight"].amax.max().item() == 0

    def test_saved_and_never_narrowed(self, device):
        layer = FP8LinearLayer(16, 16, config=FP8Config(scaling="delayed"), device=device)
        layer(torch.full((2, 16), 1e6, device=device))
        other = FP8LinearLayer(16, 16, config=FP8Config(scaling="delayed"), device=device)
        other.load_state_dict(layer.state_dict())
        assert other.half().histories["input"].amax[0].item() == 1e6  # beyond float16's 65504

    def test_gradients_with_delayed_scales(self, device):
        config = FP8Config(scaling="delayed", margin=0)
        layer = FP8LinearLayer(64, 32, bias=False, config=config, device=device)
        x, gradient = torch.randn(24, 64, device=device), torch.randn(24, 32, device=device)
        for _ in range(2):  # the second step has the first one's scales, which are its own
            layer.weight.grad = None
            layer(x).backward(gradient)
        dtypes = native_dtype(FP8Format.E4M3, device), native_dtype(FP8Format.E5M2, device)
        _, wanted = ref.backward(gradient, x, layer.weight, dtypes, "tensor")
        ref.assert_kernel(layer.weight.grad, wanted)
        assert layer.saturated() == 0


class TestLossScale:
    def test_grows_and_backs_off(self, device):
        model, (x, target) = mlp(device), task(device)
        settings = {"initial_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0}
        engine = fp8.create_fp8_trainer(model, **settings, backoff_factor=0.25)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scales = []
        for bad in (False, False, False, True, False, False):
            with torch.autocast(device.type, torch.float16):
                engine.training_step(x * float("nan") if bad else x, target)
            assert engine.optimizer_step(optimizer) == (not bad)
            scales.append(engine.loss_scale)
        assert scales == [8.0, 32.0, 32.0, 8.0, 8.0, 32.0]
        assert (engine.steps, engine.overflows) == (5, 1)

    @pytest.mark.parametrize(("half", "waits"), [(False, 0), (True, 2)])
    def test_how_often_a_step_waits(self, half, waits):
        """An optimizer step never waits in float32; in float16 it waits at most twice.

        It waits for the check that gradients are finite, and for the scale.
        """
        device = torch.device("cpu")
        model, (x, target) = mlp(device), task(device)
        engine = fp8.create_fp8_trainer(model, initial_scale=8.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            with torch.autocast("cpu", torch.float16, enabled=half):
                engine.training_step(x, target)
            with Operators() as operators:
                assert engine.optimizer_step(optimizer)
            assert operators.seen.count(READ) <= waits
        assert engine.steps == 2

    def test_gradients_add_up(self, device):
        model, (x, target) = mlp(device), task(device)
        engine = fp8.create_fp8_trainer(model, initial_scale=1.0)
        engine.training_step(x, target)
        once = [one.grad.clone() for one in model.parameters()]
        engine.training_step(x, target)
        for one, parameter in zip(once, model.parameters(), strict=True):
            assert_close(parameter.grad, 2 * one, 1e-6)
        engine.optimizer_step(torch.optim.SGD(model.parameters(), lr=0.1))
        assert all(one.grad is None for one in model.parameters())

    def test_other_losses(self, device):
        model, (x, _) = mlp(device), task(device)
        labels = torch.randint(10, (64,), device=device)
        engine = fp8.create_fp8_trainer(model)
        loss = engine.training_step(x, labels, F.cross_entropy)
        assert_close(loss, F.cross_entropy(engine.restore()(x), labels).detach(), 0.02)


class TestTraining:
    @pytest.mark.parametrize("scaling", ["dynamic", "delayed"])
    def test_goes_on_from_a_checkpoint(self, device, scaling, tmp_path):
        x, target = task(device)
        start = mlp(device)

        def begin() -> tuple[FP8TrainingEngine, torch.optim.Optimizer]:
            model = copy.deepcopy(start)
            engine = fp8.create_fp8_trainer(
                model, scaling=scaling, growth_interval=3, initial_scale=8.0
            )
            return engine, torch.optim.SGD(model.parameters(), lr=0.1)

        def steps(engine, optimizer, count) -> None:
            for _ in range(count):
                with torch.autocast(device.type, torch.float16):
                    engine.training_step(x, target)
                engine.optimizer_step(optimizer)

        through, optimizer = begin()
        steps(through, optimizer, 4)
        torch.save(through.state_dict(), tmp_path / "engine.pt")
        steps(through, optimizer, 3)
        resumed, optimizer = begin()
        resumed.load_state_dict(torch.load(tmp_path / "engine.pt", weights_only=True))
        assert (resumed.steps, resumed.loss_scale) == (4, 16.0)
        steps(resumed, optimizer, 3)
        assert resumed.loss_scale == through.loss_scale
        for one, other in zip(resumed.model.parameters(), through.model.parameters(), strict=True):
            assert torch.equal(one, other)

    def test_a_model_that_is_a_layer(self, device):
        plain = nn.Linear(64, 10, device=device)
        x, target = task(device)
        with FP8TrainingEngine(plain, FP8Config()) as engine:
            assert type(engine.model) is FP8LinearLayer
            engine.training_step(x, target)
        assert engine.model is plain
        assert plain.weight.grad is not None

    def test_modes_survive(self, device):
        model = mlp(device)
        with FP8TrainingEngine(model, FP8Config()) as engine:
            engine.model.eval()
        assert not any(one.training for one in model.modules())
