"""The validator on models: correct models pass, and each check fails on its kind of fault."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn

from torchbridge.config import ValidationLevel
from torchbridge.hardware import Hardware, probe
from torchbridge.numbers import TOLERANCE, float_tensors, relative_error
from torchbridge.validation import (
    UnifiedValidator,
    examine,
    failed,
    passed,
    warned,
)
from torchbridge.validation import model as checks

LEVELS = {"minimal": 3, "standard": 5, "strict": 7, "comprehensive": 8}
GIB = 2**30
NAN, INF = torch.nan, torch.inf


class Net(nn.Module):
    """A model 8 -> 16 -> 4 with ReLU; `spoil` is applied to its output if given."""

    def __init__(self, spoil=None) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)
        self.spoil = spoil

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [B, 4] for x [B, 8]."""
        y = self.down(self.up(x).relu())
        return y if self.spoil is None else self.spoil(y)


class BiasOnly(nn.Module):
    """A linear layer whose weight is a buffer, not a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 8))
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [B, 4] for x [B, 8]."""
        return nn.functional.linear(x, self.weight, self.bias)


def one_nan(y: Tensor) -> Tensor:
    """Return y with NaN in place of its largest number."""
    return y.masked_fill(y == y.max(), torch.nan)


def cut() -> Net:
    """Return a model whose first layer gets no gradient."""
    model = Net()
    model.up.register_forward_hook(lambda module, inputs, output: output.detach())
    return model


@torch.no_grad()
def bad(name: str, value: float, *, whole: bool = False) -> Net:
    """Return a model whose named tensor has `value` as its first number, or everywhere if `whole`.

    The model also has a float32 and a float8 buffer.
    """
    model = Net()
    model.register_buffer("noise", torch.ones(4))
    model.register_buffer("narrow", torch.ones(4).to(torch.float8_e4m3fn))
    tensor = dict(model.named_parameters()).get(name, dict(model.named_buffers()).get(name))
    spoilt = tensor.float().flatten()
    spoilt[: None if whole else 1] = value
    tensor.copy_(spoilt.reshape(tensor.shape))
    return model


@pytest.fixture
def x(device) -> Tensor:
    """Return normally distributed numbers [5, 8]."""
    return torch.randn(5, 8, device=device)


@pytest.fixture
def look(device, x):
    """Return a function that runs one check on a model, with inputs `x` by default."""

    def found(check, model: nn.Module, *, hardware=None, inputs=None):
        inputs = (x,) if inputs is None else inputs
        return check(checks.Subject(model.to(device), inputs, device, hardware or probe(device)))

    return found


class TestModel:
    @pytest.mark.parametrize(("level", "count"), LEVELS.items())
    def test_levels(self, device, x, level, count):
        report = UnifiedValidator(level, device=device).validate_model(Net(), [x])
        assert (report.ok, report.score) == (True, f"{count}/{count}")
        names = [finding.name for finding in report]
        assert names[:3] == ["parameters_exist", "no_nan_parameters", "parameter_counts"]
        assert names == [check.__name__ for check in checks.checks_of(ValidationLevel(level))]

    def test_unknown_level(self):
        with pytest.raises(ValueError, match="paranoid"):
            UnifiedValidator("paranoid")

    @pytest.mark.parametrize("training", [True, False])
    def test_the_model_stays_as_it_was(self, device, training):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).train(training)
        before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
        x = torch.randn(16, 8)
        torch.set_rng_state(state)
        report = UnifiedValidator("strict", device=device).validate_model(model, [x])
        assert report.ok, report.to_dict()
        assert model.training == model[1].training == training
        assert all(torch.equal(before[n], v.cpu()) for n, v in model.state_dict().items())
        assert all(p.grad is None for p in model.parameters())

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_gradients_are_checked_wherever_it_is_called(self, device, x, mode):
        with mode():
            report = UnifiedValidator("strict", device=device).validate_model(Net().to(device), [x])
            presets = UnifiedValidator(device=device).validate_presets()
        assert (report["gradient_flow"].details["norm"] > 0, presets.score) == (True, "3/3")

    @pytest.mark.parametrize(
        ("name", "value"),
        [("up.weight", NAN), ("up.bias", INF), ("noise", -INF), ("narrow", NAN)],
    )
    def test_numbers_that_are_not_finite(self, look, name, value):
        finding = look(checks.no_nan_parameters, bad(name, value))
        assert (finding.status, finding.details) == ("fail", {"not_finite": {name: 1}})

    @pytest.mark.parametrize(
        ("check", "model", "status", "facts"),
        [
            (checks.parameters_exist, nn.ReLU, "fail", {}),
            (checks.parameters_exist, Net, "pass", {"tensors": 4}),
            (checks.no_nan_parameters, lambda: bad("narrow", 1.0), "pass", {"tensors": 6}),
            (checks.parameter_counts, lambda: Net().requires_grad_(False), "fail", {}),
            (checks.parameter_counts, BiasOnly, "warning", {"layers": [""]}),
            (checks.parameter_counts, lambda: nn.BatchNorm1d(8), "pass", {}),
            (checks.forward_finite, lambda: Net(one_nan), "fail", {"not_finite": 1}),
            (checks.forward_finite, lambda: Net(nn.functional.dropout), "fail", {}),
            (checks.forward_finite, lambda: nn.Sequential(Net(), nn.Dropout(0.9)), "pass", {}),
            (checks.gradient_flow, lambda: Net().requires_grad_(False), "fail", {}),
            (checks.gradient_flow, cut, "fail", {"lost": ["up.weight", "up.bias"]}),
            (checks.gradient_flow, lambda: Net(torch.Tensor.detach), "fail", {}),
            (checks.gradient_flow, lambda: Net(lambda y: (y - y).sqrt()), "fail", {}),
            (checks.gradient_flow, lambda: bad("up.bias", -1e3, whole=True), "warning", {}),
            (checks.numerical_stability, lambda: Net(lambda y: (y + 1e6) - 1e6), "fail", {}),
            (checks.numerical_stability, lambda: Net(torch.exp), "warning", {}),
        ],
    )
    def test_what_each_check_is_there_for(self, look, check, model, status, facts):
        finding = look(check, model())
        assert finding.status == status, finding.message
        assert {name: finding.details[name] for name in facts} == facts

    def test_counts(self, look):
        model = Net()
        model.down.weight.requires_grad_(False)
        finding = look(checks.parameter_counts, model)
        wanted = {"trainable": 8 * 16 + 16 + 4, "frozen": 16 * 4, "bytes": 4 * (144 + 68)}
        assert (finding.status, finding.details) == ("pass", wanted)

    def test_shared_weights_count_once(self, look):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        model[1].weight = model[0].weight
        details = look(checks.parameter_counts, model).details
        assert (details["trainable"], details["bytes"]) == (64 + 16, 4 * 80)

    def test_gradient_norm(self, look, device):
        model = nn.Linear(8, 4).to(device, torch.float64)
        x = torch.randn(5, 8, dtype=torch.float64, device=device)
        finding = look(checks.gradient_flow, model, inputs=(x,))
        torch.manual_seed(0)
        direction = torch.randn_like(model(x))  # d/dW sum(y * direction) = direction^T x
        expected = torch.cat([(direction.T @ x).flatten(), direction.sum(dim=0)]).norm()
        assert finding.details["norm"] == pytest.approx(expected.item(), rel=1e-12)

    def test_memory_is_counted(self, look, x):
        details = look(checks.memory_usage, Net()).details
        weights = 4 * (8 * 16 + 16 + 16 * 4 + 4)
        assert (details["weights"], details["gradients"]) == (weights, weights)
        assert details["activations"] == 5 * 16 * 4  # relu's output; x and the weights are there

    @pytest.mark.parametrize(
        ("size", "status"), [(2015, "fail"), (2016, "warning"), (4 * GIB, "pass")]
    )
    def test_memory_of_the_device(self, look, size, status):
        hardware = Hardware.nvidia((8, 0), memory_bytes=size)
        finding = look(checks.memory_usage, Net(), hardware=hardware)
        assert (sum(finding.details.values()), finding.status) == (2016, status)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_stability(self, look, device, dtype):
        x = torch.randn(5, 8, device=device, dtype=dtype)
        finding = look(checks.numerical_stability, Net().to(dtype), inputs=(x,))
        assert finding.status == "pass"
        assert finding.details["tolerance"] == TOLERANCE[dtype]
        assert finding.details["error"] > 0

    def test_performance(self, look):
        finding = look(checks.performance, nn.Linear(8, 4))
        assert finding.status == "pass"
        median = sorted(finding.details["samples_s"])[4:6]
        assert finding.details["flops_per_s"] == pytest.approx(2 * 5 * 8 * 4 / (sum(median) / 2))

    def test_faster_than_the_device_can(self, look):
        snail = Hardware.nvidia((9, 0), units=1, clock_hz=1.0)
        finding = look(checks.performance, Net(), hardware=snail)
        assert (finding.status, finding.details["peak"]) == ("fail", 2048.0)

    def test_nested_outputs(self):
        a, b = torch.ones(2), torch.zeros(3)
        assert [t.numel() for t in float_tensors({"a": a, "b": (b, torch.tensor([1]))})] == [2, 3]
        with pytest.raises(TypeError, match="floating-point"):
            float_tensors(torch.tensor([1]))


class TestFindings:
    def test_a_check_that_throws_fails(self):
        def broken():
            raise OSError("no such thing")

        report = examine("three", {"a": lambda: passed("fine", n=1), "b": broken})
        assert (report.ok, report.score) == (False, "1/2")
        assert report["b"].message == "OSError: no such thing"
        assert (report["a"].name, report["a"].details) == ("a", {"n": 1})

    def test_warnings_are_no_failures_and_no_passes(self):
        one = {"a": lambda: warned("hm", "look"), "b": lambda: passed("fine")}
        report = examine("two", one)
        assert (report.ok, report.score, report.names("warning")) == (True, "1/2", ("a",))
        assert not examine("one", {"a": lambda: failed("no", "mend")}).ok
        with pytest.raises(KeyError, match=r"no check 'c' in \['a', 'b'\]"):
            report["c"]

    def test_json(self):
        report = examine("one", {"a": lambda: warned("hm", "look", n=[1])})
        written = json.loads(json.dumps(report.to_dict()))
        assert written["findings"] == [
            {
                "name": "a",
                "status": "warning",
                "message": "hm",
                "details": {"n": [1]},
                "recommendation": "look",
            }
        ]

    def test_relative_error(self):
        expected = torch.tensor([1.0, -4.0])
        assert relative_error(torch.tensor([1.5, -4.0]), expected) == 0.125
        assert relative_error(torch.tensor([1.0, torch.nan]), expected) == float("inf")
        with pytest.raises(ValueError, match=r"shape \(1,\) is not \(2,\)"):
            relative_error(torch.ones(1), expected)
