"""Float8 inference beyond the named suite: memory of storages, calibration, unusual models."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites import fp8_reference as ref
from suites.covering import pairwise
from suites.fp8_fakes import install
from suites.fp8_reference import assert_path, mlp
from suites.numerics import assert_close, rms_error
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import (
    FP8Dtype,
    FP8InferenceEngine,
    FP8InferenceLinear,
    FP8QuantizedTensor,
    scaled_matmul,
)
from torchbridge.fp8.conversion import linear_layers

pytestmark = pytest.mark.usefixtures("in_float8")

GRANULARITIES = ["tensor", "row", "block"]


class Tied(nn.Module):
    """A model whose head shares the embedding's weight, and which uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.twice = nn.Linear(32, 32)
        self.again = self.twice
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, length, 50] for tokens [batch, length]."""
        return self.head(self.again(self.twice(self.embedding(tokens)).tanh()))


class TestLayer:
    @pytest.mark.parametrize(
        ("path", "fmt", "granularity"),
        pairwise(["auto", "dequantised"], list(FP8Dtype), GRANULARITIES),
    )
    def test_against_double(self, device, granularity, fmt, path):
        plain = nn.Linear(150, 70, device=device)
        layer = FP8InferenceLinear(plain, fmt=fmt, granularity=granularity, path=path)
        x = torch.randn(3, 11, 150, device=device)
        dtype = native_dtype(fmt, device)
        wanted = ref.forward(x.reshape(33, 150), plain.weight, dtype, granularity)
        wanted = wanted + plain.bias.detach().cpu().double()
        ref.assert_kernel(layer(x), wanted.reshape(3, 11, 70))
        assert rms_error(layer(x), ref.exact(x, plain)) <= ref.PRODUCT[fmt]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_dtypes_leave_the_weight(self, device, dtype):
        plain = nn.Linear(64, 32, device=device)
        nn.init.zeros_(plain.bias)
        x = torch.randn(8, 64, device=device) * 1e-4  # the scales leave float16
        layer = FP8InferenceLinear(plain, input_amax=x.abs().max())
        before = layer.weight.float(), layer.weight_scale.clone(), layer.input_scale.clone()
        layer = layer.to(dtype)
        assert layer.weight.dtype == native_dtype(FP8Dtype.E4M3, device)
        assert layer.weight_scale.dtype == layer.input_scale.dtype == torch.float32
        after = layer.weight.float(), layer.weight_scale, layer.input_scale
        assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
        assert layer.bias.dtype == dtype
        assert layer(x.to(dtype)).dtype == dtype
        assert rms_error(layer(x.to(dtype)), ref.exact(x, plain)) <= ref.PRODUCT[FP8Dtype.E4M3]

    def test_no_gradient_is_kept(self, device):
        layer = FP8InferenceLinear(nn.Linear(64, 32, device=device))
        x = torch.randn(4, 64, device=device, requires_grad=True)
        assert not layer(x).requires_grad


class TestBias:
    """The kernel adds the bias where it can; elsewhere the layer adds it in a further pass."""

    def check(self, device, columns, dtype, granularity="tensor"):
        plain = nn.Linear(144, columns, device=device)
        nn.init.normal_(plain.bias, std=3)
        x = torch.randn(3, 11, 144, device=device, dtype=dtype)
        layer = FP8InferenceLinear(plain, granularity=granularity)
        out, near = layer(x), layer.weight.dtype
        wanted = ref.forward(x.reshape(33, 144), plain.weight, near, granularity)
        wanted += plain.bias.detach().cpu().double()
        assert_close(out, wanted.reshape(out.shape), 8e-3)
        return layer

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_on_the_device(self, device, dtype):
        layer = self.check(device, 48, dtype)
        assert_path(layer)
        if dtype.itemsize == 2 and (device.type == "cpu" or torch.version.cuda):  # kernel adds bias
            assert layer.taken.adds == (layer.fallback is None)

    @pytest.mark.parametrize(
        ("granularity", "columns", "dtype", "within"),
        [
            ("tensor", 48, torch.bfloat16, True),
            ("tensor", 48, torch.float16, True),
            ("tensor", 48, torch.float32, False),
            ("tensor", 40, torch.bfloat16, False),
            ("row", 48, torch.bfloat16, False),
            ("block", 48, torch.bfloat16, False),
        ],
    )
    def test_where_the_kernel_adds_it(self, monkeypatch, granularity, columns, dtype, within):
        fake = install(monkeypatch)
        layer = self.check(torch.device("cpu"), columns, dtype, granularity)
        assert (fake.calls[-1]["bias"], layer.path_taken) == (within, "scaled_mm")

    def test_a_kernel_that_does_not_add(self, monkeypatch):
        fake = install(monkeypatch, adds=False)
        layer = self.check(torch.device("cpu"), 48, torch.bfloat16)
        assert (fake.calls[-1]["bias"], layer.path_taken) == (False, "scaled_mm")

    def test_gradients_and_no_numbers(self, monkeypatch):
        fake, codes = install(monkeypatch), torch.ones(16, 16).to(torch.float8_e4m3fn)
        ones = FP8QuantizedTensor(codes, torch.ones(()), torch.bfloat16)
        bias = torch.ones(16, dtype=torch.bfloat16, requires_grad=True)
        scaled_matmul(ones, ones, bias, out_dtype=torch.bfloat16)[0].sum().backward()
        assert (fake.calls[-1]["bias"], bias.grad.tolist()) == (False, [16.0] * 16)
        none = FP8QuantizedTensor(codes[:, :0], torch.ones(()), torch.bfloat16)
        out, _ = scaled_matmul(none, none, bias.detach(), out_dtype=torch.bfloat16)
        assert (out == 1).all()


class TestMemory:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    @pytest.mark.parametrize("granularity", GRANULARITIES)
    def test_from_storage(self, device, dtype, granularity):
        """The weights take one byte each, plus the scales: half of bfloat16."""
        model = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 128)).to(device, dtype)
        engine = FP8InferenceEngine(model, granularity=granularity)
        engine.prepare()
        found, weights, biases = engine.get_memory_savings(), 256 * 512 + 512 * 128, 512 + 128
        scales = {"tensor": 2, "row": 512 + 128, "block": 4 * 2 + 1 * 4}[granularity]
        assert found["fp8_weight_bytes"] * dtype.itemsize == found["original_weight_bytes"]
        assert found["fp8_weight_bytes"] == weights
        assert found["scale_bytes"] == 4 * scales
        assert found["scale_bytes"] / weights < 0.02
        assert found["fp8_bytes"] == weights + dtype.itemsize * biases + 4 * scales

    def test_the_original_is_let_go(self, device):
        engine = FP8InferenceEngine(mlp(device))
        engine.prepare()
        assert engine.source is None
        with pytest.raises(RuntimeError, match="prepared already"):
            engine.prepare()


class TestModels:
    def test_tied_and_shared(self, device):
        model = Tied().to(device)
        tokens = torch.randint(50, (4, 9), device=device)
        wanted = model(tokens)
        converted = fp8.convert_model_to_native_fp8(model)
        assert converted.head.weight is converted.embedding.weight
        assert converted.again is converted.twice
        assert rms_error(converted(tokens), wanted) <= 0.08
        engine = FP8InferenceEngine(model)
        prepared = engine.prepare()
        assert prepared.again is prepared.twice
        assert rms_error(engine.infer(tokens), wanted) <= 0.08
        assert model.head.weight is model.embedding.weight

    def test_a_model_that_is_a_layer(self, device):
        plain = nn.Linear(64, 32, device=device)
        layer = fp8.convert_model_to_native_fp8(plain, inplace=True)
        ref.assert_forward(layer, torch.randn(4, 64, device=device))
        assert layer.weight is plain.weight
        assert type(FP8InferenceEngine(plain).prepare()) is FP8InferenceLinear

    @torch.no_grad()
    def test_the_encoder_s_fast_path_is_left(self, device):
        """The fast path of nn.TransformerEncoderLayer, which bypasses its layers, is avoided."""
        model = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True).to(device)
        x = torch.randn(2, 7, 32, device=device)
        wanted = model.eval()(x)
        engine = FP8InferenceEngine(model)
        prepared, converted = engine.prepare(), fp8.convert_model_to_native_fp8(model)
        assert 1e-4 <= rms_error(engine.infer(x), wanted) <= 0.05
        assert 1e-4 <= rms_error(converted(x), wanted) <= 0.05
        assert_path(prepared.linear1)
        assert_path(converted.linear1)

    def test_patterns_of_names(self, device):
        model = nn.ModuleDict({"body": mlp(device), "head": nn.Linear(10, 4)})
        assert list(linear_layers(model)) == ["body.0", "body.2", "head"]
        assert list(linear_layers(model, ("body.*",))) == ["head"]
        assert list(linear_layers(model, ("*.0", "head"))) == ["body.2"]

    def test_modes_are_kept(self, device):
        model = mlp(device)
        model[0].eval()
        converted = fp8.convert_model_to_native_fp8(model)
        assert [one.training for one in converted] == [False, True, True]
        FP8InferenceEngine(model).prepare([torch.randn(2, 64, device=device)])
        assert [one.training for one in model] == [False, True, True]
        assert not any(one.training for one in copy.deepcopy(model).eval().modules())


class TestCalibration:
    def test_of_a_scale_per_tensor_only(self, device):
        engine = FP8InferenceEngine(mlp(device), granularity="row")
        with pytest.raises(ValueError, match="granularity='tensor'"):
            engine.prepare(torch.randn(1, 4, 64, device=device))

    def test_it_watches_no_longer(self, device):
        model, seen = mlp(device), torch.randn(1, 4, 64, device=device)
        first = FP8InferenceEngine(model).prepare(seen)[0]
        before = first.input_scale.clone()
        model(100 * seen[0])
        assert torch.equal(first.input_scale, before)
        assert torch.equal(FP8InferenceEngine(model).prepare(seen)[0].input_scale, before)
