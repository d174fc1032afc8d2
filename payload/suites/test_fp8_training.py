"""The 20 named tests of FP8 training. References: fp8_reference.py, and plain float32 training."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites import fp8_reference as ref
from suites.fp8_reference import mlp, task
from suites.numerics import assert_close, relative_error, rms_error
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import FP8Config, FP8Format, FP8LinearLayer, FP8TrainingEngine

pytestmark = pytest.mark.usefixtures("in_float8")


def half(device: torch.device) -> torch.autocast:
    """Return autocast to float16, whose gradients need a loss scale."""
    return torch.autocast(device.type, torch.float16)


def run(
    engine: FP8TrainingEngine, optimizer: torch.optim.Optimizer, steps: int, x, target
) -> list[float]:
    """Return the losses of `steps` training steps on one batch."""
    losses = []
    for _ in range(steps):
        losses.append(engine.training_step(x, target).item())
        assert engine.optimizer_step(optimizer)
    return losses


class TestFP8Config:
    def test_config_creation(self):
        config = FP8Config()
        assert (config.forward_format, config.backward_format) == (FP8Format.E4M3, FP8Format.E5M2)
        assert (config.scaling, config.initial_scale) == ("dynamic", 32768.0)
        assert (config.growth_factor, config.backoff_factor) == (2.0, 0.5)
        assert (config.amax_history_len, config.margin) == (1024, 2)
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.margin = 0

    def test_config_validation(self):
        wrong = {"scaling": "static", "initial_scale": 0, "growth_factor": 1.0, "margin": -1}
        wrong |= {"backoff_factor": 1.0, "amax_history_len": 0, "amax_compute_algo": "mean"}
        wrong |= {"growth_interval": 0, "granularity": "column", "path": "fast"}
        for name, value in wrong.items():
            with pytest.raises(ValueError, match=f"{name}={value!r}"):
                FP8Config(**{name: value})
        with pytest.raises(ValueError, match="granularity='row'"):
            FP8Config(scaling="delayed", granularity="row")


class TestFP8LinearLayer:
    def test_layer_creation(self):
        layer = FP8LinearLayer(64, 32, config=FP8Config(scaling="delayed", amax_history_len=16))
        shapes = {name: tuple(one.shape) for name, one in layer.named_parameters()}
        assert shapes == {"weight": (32, 64), "bias": (32,)}  # the weight is a trainable parameter
        assert all(one.requires_grad for one in layer.parameters())
        assert [(n, one.amax.shape) for n, one in layer.histories.items()] == [
            ("input", (16,)),
            ("weight", (16,)),
            ("gradient", (16,)),
        ]
        assert not FP8LinearLayer(64, 32).histories

    def test_forward_pass(self, device):
        x = torch.randn(3, 8, 64, device=device)
        ref.assert_forward(FP8LinearLayer(64, 32, device=device), x)
        delayed = FP8LinearLayer(64, 32, config=FP8Config(scaling="delayed"), device=device)
        assert rms_error(delayed(x), ref.exact(x, delayed)) <= ref.PRODUCT[FP8Format.E4M3]

    def test_scale_updates(self, device):
        config = FP8Config(scaling="delayed", amax_history_len=3, margin=1)
        layer = FP8LinearLayer(8, 8, config=config, device=device)
        limit = ref.LIMITS[native_dtype(FP8Format.E4M3, device)]
        largest = [4.0, 1.0, 2.0, 8.0, 1.0, 1.0, 1.0]
        expected = [4.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0]  # of the three steps before; first: itself
        for size, amax in zip(largest, expected, strict=True):
            layer(torch.full((2, 8), size, device=device))
            assert layer.get_scales()["input"] == limit / (amax * 2)
        assert layer.histories["input"].amax.tolist() == [1.0, 1.0, 1.0]
        before = layer.eval().histories["input"].amax.clone()
        layer(torch.full((2, 8), 50.0, device=device))
        assert torch.equal(layer.histories["input"].amax, before)


class TestFP8TrainingEngine:
    def test_engine_creation(self, device):
        model = mlp(device)
        engine = FP8TrainingEngine(model, FP8Config(initial_scale=1024.0))
        assert (engine.loss_scale, engine.steps, engine.overflows) == (1024.0, 0, 0)
        assert type(engine.model[0]) is nn.Linear
        x, target = task(device)
        with pytest.raises(RuntimeError, match="setup"):
            engine.training_step(x, target)

    def test_setup_fp8_training(self, device):
        model = mlp(device)
        parameters = list(model.parameters())
        engine = FP8TrainingEngine(model, FP8Config())
        assert engine.setup() is engine.setup()
        assert type(engine.model[0]) is type(engine.model[2]) is FP8LinearLayer
        assert list(map(id, engine.model.parameters())) == list(map(id, parameters))
        with pytest.raises(ValueError, match=r"no nn\.Linear"):
            FP8TrainingEngine(nn.Conv1d(1, 1, 1), FP8Config()).setup()

    def test_training_step(self, device):
        model, (x, target) = mlp(device), task(device)
        plain = F.mse_loss(copy.deepcopy(model)(x), target)
        engine = fp8.create_fp8_trainer(model, initial_scale=64.0)
        with half(device):
            loss = engine.training_step(x, target)
        assert not loss.requires_grad
        assert_close(loss, plain, 0.02)
        scaled = [one.grad.clone() for one in model.parameters()]
        model.zero_grad()
        with half(device):
            F.mse_loss(model(x), target).backward()
        for one, parameter in zip(scaled, model.parameters(), strict=True):
            assert_close(one, 64 * parameter.grad.double(), 5e-3)

    def test_optimizer_step(self, device):
        """float32 has no loss scale: the setting changes no bit of the step."""
        x, target = task(device)
        stepped = []
        for scale in (1.0, 1024.0):
            torch.manual_seed(7)
            model = mlp(device)
            before = copy.deepcopy(model)
            engine = fp8.create_fp8_trainer(model, initial_scale=scale)
            run(engine, torch.optim.SGD(model.parameters(), lr=0.1), 1, x, target)
            stepped.append(model)
            assert (engine.steps, engine.overflows, engine.loss_scale) == (1, 0, scale)
        for old, *new in zip(before.parameters(), *(m.parameters() for m in stepped), strict=True):
            assert torch.equal(*new)
            assert relative_error(new[0], old) > 1e-3

    def test_context_manager(self, device):
        model, (x, target) = mlp(device), task(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = [one.detach().clone() for one in model.parameters()]
        layers = list(model)
        with FP8TrainingEngine(model, FP8Config()) as engine:
            assert type(model[0]) is FP8LinearLayer
            run(engine, optimizer, 1, x, target)
        assert list(model) == layers  # the plain layers have the trained weights
        for old, new in zip(before, model.parameters(), strict=True):
            assert not torch.equal(old, new)


class TestFP8ModelConversion:
    def test_convert_model(self, device):
        model = mlp(device)
        converted = fp8.convert_model_to_fp8_training(model, FP8Config(scaling="delayed"))
        assert [type(one) for one in converted] == [FP8LinearLayer, nn.GELU, FP8LinearLayer]
        assert type(model[0]) is nn.Linear
        assert converted[0].histories["weight"].amax.tolist() == [0.0] * 1024
        assert torch.equal(converted[0].weight, model[0].weight)
        assert fp8.convert_model_to_fp8_training(model, inplace=True) is model

    def test_converted_model_forward(self, device):
        model = mlp(device)
        x = torch.randn(32, 64, device=device)
        for scaling in ("dynamic", "delayed"):
            converted = fp8.convert_model_to_fp8_training(model, FP8Config(scaling=scaling))
            assert rms_error(converted(x), model(x)) <= 0.06


class TestFP8Validation:
    def test_validate_fp8_setup(self, device):
        result = fp8.validate_fp8_setup(device)
        assert result["passed"]
        limits = {name: check["limit"] for name, check in result["checks"].items()}
        assert limits == {
            "round_trip_e4m3": 0.03,
            "round_trip_e5m2": 0.06,
            "product": 0.045,
            "gradient_of_input": 0.09,
            "gradient_of_weight": 0.09,
        }
        for name, check in result["checks"].items():
            assert 0.3 * limits[name] <= check["error"] <= limits[name], name


class TestFP8Integration:
    def test_factory_function(self, device):
        engine = fp8.create_fp8_trainer(mlp(device), scaling="delayed", margin=0)
        assert (engine.config.scaling, engine.config.margin) == ("delayed", 0)
        assert type(engine.model[0]) is FP8LinearLayer
        assert engine.model[0].histories["input"].margin == 0
        with pytest.raises(ValueError, match="margin"):
            fp8.create_fp8_trainer(mlp(device), margin=-1)

    def test_end_to_end_training(self, device):
        """After 30 steps of Adam the loss is near float32's, with both kinds of scaling.

        Both losses are relative to that of predicting zero, and differ by at most 0.02.
        """
        start, (x, target) = mlp(device), task(device)
        plain = copy.deepcopy(start)
        wanted = ref.train(plain, x, target)
        for scaling in ("dynamic", "delayed"):
            model = copy.deepcopy(start)
            engine = fp8.create_fp8_trainer(model, scaling=scaling)
            losses = run(engine, torch.optim.Adam(model.parameters(), lr=1e-2), 30, x, target)
            loss = (F.mse_loss(engine.restore()(x), target) / target.square().mean()).item()
            assert losses[-1] <= 0.5 * losses[0]
            assert abs(loss - wanted) <= 0.02
            for old, new in zip(start.parameters(), model.parameters(), strict=True):
                assert relative_error(new, old) > 0.05  # weights and biases are trained

    def test_statistics_tracking(self, device):
        model, (x, target) = mlp(device), task(device)
        engine = fp8.create_fp8_trainer(model, initial_scale=1024.0, scaling="delayed")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run(engine, optimizer, 3, x, target)
        before = [one.detach().clone() for one in model.parameters()]
        with half(device):
            engine.training_step(x * torch.inf, target)
        assert not engine.optimizer_step(optimizer)
        for old, new in zip(before, model.parameters(), strict=True):
            assert torch.equal(old, new)  # skipped and counted; the scale is reduced
        found = engine.statistics()
        assert (found["steps"], found["overflows"], found["loss_scale"]) == (3, 1, 512.0)
        assert found["layers"] == 2
        assert set(found["scales"]) == {"0", "2"}
        limit = ref.LIMITS[native_dtype(FP8Format.E4M3, device)]
        largest = x.abs().max().item()
        assert found["scales"]["0"]["input"] == pytest.approx(limit / (4 * largest), rel=1e-6)


class TestFP8Performance:
    def test_memory_efficiency(self, device):
        """The backward pass saves float8: a quarter of float32's bytes, measured by storages."""
        kept: dict[type, int] = {}
        for kind in (nn.Linear, FP8LinearLayer):
            layer = kind(256, 128, device=device)
            storages = {}

            def keep(tensor, storages=storages):
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
                return tensor

            x = torch.randn(512, 256, device=device)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                layer(x.requires_grad_())
            kept[kind] = sum(storages.values())
        assert kept[nn.Linear] == 4 * (512 * 256 + 128 * 256)
        assert kept[FP8LinearLayer] == 512 * 256 + 128 * 256 + 2 * 4

    def test_numerical_stability(self, device):
        for size in (1e-6, 1.0, 1e6):
            layer = FP8LinearLayer(64, 32, bias=False, device=device)
            x = torch.randn(32, 64, device=device, requires_grad=True)
            gradient = torch.randn(32, 32, device=device) * size  # far beyond float16 and back
            layer(x).backward(gradient)
            wanted = gradient.cpu().double().T @ x.detach().cpu().double()
            assert rms_error(layer.weight.grad, wanted) <= ref.PRODUCT[FP8Format.E5M2]


@pytest.mark.parametrize(
    "format_combo",
    [(FP8Format.E4M3, FP8Format.E5M2), (FP8Format.E5M2, FP8Format.E4M3)],
)
def test_different_format_combinations(device, format_combo):
    near, back = format_combo
    config = FP8Config(forward_format=near, backward_format=back)
    layer = FP8LinearLayer(64, 32, bias=False, config=config, device=device)
    x = torch.randn(32, 64, device=device, requires_grad=True)
    ref.assert_forward(layer, x)
    ref.assert_gradients(layer, x, torch.randn(32, 32, device=device))
