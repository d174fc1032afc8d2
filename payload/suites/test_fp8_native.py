"""The 51 named tests of float8. References: fp8_reference.py (bit layouts), float64 products."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from benchmarks import fp8 as fp8_benchmark
from suites import fp8_reference as ref
from suites.fp8_reference import PRODUCT, ROUND_TRIP, assert_forward, assert_path, mlp
from suites.numerics import assert_close, relative_error, rms_error
from torchbridge import fp8
from torchbridge.bench import run_benchmark
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import FP8Dtype, FP8InferenceEngine, FP8QuantizedTensor, NativeFP8Linear
from torchbridge.hardware import Hardware, probe

pytestmark = pytest.mark.usefixtures("in_float8")

E4M3, E5M2 = FP8Dtype


class TestFP8Availability:
    def test_is_fp8_available(self, device):
        a, b = torch.randn(5, 40, device=device), torch.randn(7, 40, device=device)
        left, right = FP8QuantizedTensor.from_tensor(a), FP8QuantizedTensor.from_tensor(b)
        assert fp8.is_fp8_available(device) == ref.kernel_works(device)
        if fp8.is_fp8_available(device):
            out, _ = fp8.scaled_matmul(left, right, path="scaled_mm")
            ref.assert_kernel(out, ref.forward(a, b, left.data.dtype, "tensor"))
        else:
            with pytest.raises(RuntimeError, match="dequantised"):
                fp8.scaled_matmul(left, right, path="scaled_mm")

    def test_get_fp8_info(self, device):
        info = fp8.get_fp8_info(device)
        assert info["torch"] == torch.__version__
        known = info["scaled_mm"] is not None, info["why_not"] is None
        assert known == (fp8.is_fp8_available(device),) * 2
        assert info["hardware_accelerated"] == probe(device).has("fp8")
        for fmt in FP8Dtype:
            dtype, facts = native_dtype(fmt, device), info["formats"][fmt.name]
            assert (facts["dtype"], facts["max"]) == (str(dtype), ref.LIMITS[dtype])

    def test_fp8_dtype_enum(self):
        assert [fmt.value for fmt in FP8Dtype] == ["e4m3fn", "e5m2"]
        assert (E4M3.max, E5M2.max) == (448.0, 57344.0)
        assert FP8Dtype("e5m2") is E5M2
        assert (E4M3.mantissa_bits, E5M2.mantissa_bits) == (3, 2)

    def test_get_fp8_dtype(self):
        assert fp8.get_fp8_dtype(E5M2) is torch.float8_e5m2
        for hardware in (None, Hardware.nvidia((9, 0)), Hardware.amd("gfx950")):
            assert fp8.get_fp8_dtype(E4M3, hardware) is torch.float8_e4m3fn
        cdna3 = Hardware.amd("gfx942:sramecc+:xnack-")
        assert fp8.get_fp8_dtype(E4M3, cdna3) is torch.float8_e4m3fnuz
        assert fp8.get_fp8_dtype(E5M2, cdna3) is torch.float8_e5m2fnuz
        with pytest.raises(ValueError, match="e3m4"):
            fp8.get_fp8_dtype("e3m4")


class TestFP8Quantization:
    def test_compute_fp8_scale_e4m3(self, device):
        ref.assert_scale(torch.randn(64, 64, device=device), E4M3)

    def test_compute_fp8_scale_e5m2(self, device):
        ref.assert_scale(torch.randn(64, 64, device=device), E5M2)

    def test_compute_fp8_scale_with_margin(self, device):
        x = torch.randn(64, 64, device=device)
        scale = fp8.compute_fp8_scale(x)
        for margin in (1, 2, 3):
            assert fp8.compute_fp8_scale(x, margin=margin) == scale / 2**margin

    def test_quantize_to_fp8_e4m3(self, device):
        ref.assert_quantised(torch.randn(100, 256, device=device), E4M3)

    def test_quantize_to_fp8_e5m2(self, device):
        ref.assert_quantised(torch.randn(100, 256, device=device), E5M2)

    def test_dequantize_from_fp8(self, device):
        numbers = torch.tensor([0.0, 1.0, -2.0, 6.0, -0.125], device=device)  # exact in float8
        for fmt in FP8Dtype:
            quantised = numbers.to(native_dtype(fmt, device))
            back = fp8.dequantize_from_fp8(quantised, torch.tensor(32.0), torch.float64)
            assert torch.equal(back, numbers.double() / 32)

    def test_roundtrip_accuracy(self, device):
        x = torch.randn(100, 256, device=device)
        for fmt, limit in ROUND_TRIP.items():
            scale = fp8.compute_fp8_scale(x, fmt)
            back = fp8.dequantize_from_fp8(fp8.quantize_to_fp8(x, scale, fmt), scale)
            assert limit / 2 <= rms_error(back, x) <= limit

    def test_e4m3_vs_e5m2_precision(self, device):
        x = torch.randn(100, 256, device=device)
        back = [FP8QuantizedTensor.from_tensor(x, fmt).dequantize() for fmt in FP8Dtype]
        fine, coarse = (rms_error(one, x) for one in back)
        assert 1.8 <= coarse / fine <= 2.2  # a bit of mantissa is a factor of two


class TestFP8QuantizedTensor:
    def test_from_tensor(self, device):
        x = torch.randn(32, 48, device=device, dtype=torch.bfloat16)
        quantised = FP8QuantizedTensor.from_tensor(x, E5M2)
        assert (quantised.shape, quantised.dtype) == (x.shape, torch.bfloat16)
        assert quantised.format is E5M2
        assert quantised.nbytes == 32 * 48 + 4  # of storage: a byte each, and the scale
        expected = ref.snapped(x, quantised.data.dtype, (None, None))
        assert_close(quantised.dequantize(torch.float64), expected, 1e-6)

    def test_dequantize(self, device):
        x = torch.randn(32, 48, device=device)
        quantised = FP8QuantizedTensor.from_tensor(x)
        assert quantised.dequantize().dtype == torch.float32
        assert rms_error(quantised.dequantize(), x) <= ROUND_TRIP[E4M3]
        assert_close(quantised.dequantize(torch.float16), quantised.dequantize())

    def test_to_device(self, device):
        quantised = FP8QuantizedTensor.from_tensor(torch.randn(8, 16))
        moved = quantised.to(device)
        assert moved.data.device.type == moved.scale.device.type == device.type
        assert torch.equal(moved.dequantize().cpu(), quantised.dequantize())
        assert torch.equal(moved.to("cpu").data.view(torch.uint8), quantised.data.view(torch.uint8))

    def test_with_custom_scale(self, device):
        x = torch.tensor([0.5, 1.0, -3.0, 1000.0], device=device)
        quantised = FP8QuantizedTensor.from_tensor(x, scale=torch.tensor(2.0, device=device))
        limit = torch.finfo(quantised.data.dtype).max
        assert quantised.data.float().tolist() == [1.0, 2.0, -6.0, limit]
        assert quantised.dequantize().tolist() == [0.5, 1.0, -3.0, limit / 2]


class TestNativeFP8Linear:
    def test_layer_creation(self):
        layer = NativeFP8Linear(64, 32)
        shapes = {name: tuple(one.shape) for name, one in layer.named_parameters()}
        assert shapes == {"weight": (32, 64), "bias": (32,)}
        assert all(one.requires_grad for one in layer.parameters())
        assert list(layer.state_dict()) == list(nn.Linear(64, 32).state_dict())
        with pytest.raises(ValueError, match="column"):
            NativeFP8Linear(64, 32, granularity="column")

    def test_layer_creation_no_bias(self, device):
        layer = NativeFP8Linear(64, 32, bias=False, device=device)
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
        assert_forward(layer, torch.randn(5, 64, device=device))

    def test_layer_forward(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.randn(16, 64, device=device)
        assert_forward(layer.train(), x)
        assert_forward(layer.eval(), x)  # by inverted scales this is 8.6e9 times too large
        assert_path(layer)

    def test_layer_forward_batch(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.randn(2, 3, 5, 64, device=device)
        assert_forward(layer, x)
        assert torch.equal(layer(x), layer(x.reshape(30, 64)).reshape(2, 3, 5, 32))
        assert layer(x[0, 0, 0]).shape == (32,)

    def test_layer_gradient_flow(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.randn(24, 64, device=device, requires_grad=True)
        ref.assert_gradients(layer, x, torch.randn(24, 32, device=device))

    def test_layer_weight_formats(self, device):
        for fmt in FP8Dtype:
            layer = NativeFP8Linear(128, 64, forward_format=fmt, device=device)
            assert layer.sync_weights().format is fmt
            assert_forward(layer, torch.randn(50, 128, device=device))

    def test_layer_get_fp8_info(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        info = layer.get_fp8_info()
        assert (info["forward_format"], info["backward_format"]) == ("e4m3fn", "e5m2")
        assert (info["weight_bytes"], info["fp8_weight_bytes"]) == (64 * 32 * 4, 64 * 32 + 4)
        assert info["weight_scale"].item() == ref.scale_of(layer.weight, E4M3)
        assert 0.01 <= info["weight_rms_error"] <= 0.03

    def test_layer_sync_weights(self, device):
        layer = NativeFP8Linear(64, 32, bias=False, device=device).eval()
        x = torch.randn(4, 64, device=device)
        layer.sync_weights()
        before = layer(x)
        nn.init.ones_(layer.weight)
        assert torch.equal(layer(x), before)  # the weight of the last synchronisation
        layer.sync_weights()
        assert_forward(layer, x)

    def test_layer_training_mode(self, device):
        layer = NativeFP8Linear(64, 32, bias=False, device=device).train()
        x = torch.randn(4, 64, device=device)
        layer.sync_weights()  # has no effect in training
        before = layer(x)
        torch.optim.SGD(layer.parameters(), lr=1.0).step(lambda: layer(x).square().sum().backward())
        assert relative_error(layer(x), before) > 0.1
        assert_forward(layer, x)

    def test_layer_eval_mode(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.randn(4, 64, device=device)
        trained = layer(x)
        layer.eval()
        assert torch.equal(layer(x), trained)
        nn.init.xavier_normal_(layer.weight)  # not synchronised: eval sees the weight as it is
        assert_forward(layer, x)


class TestFP8InferenceEngine:
    def test_engine_creation(self, device):
        model = mlp(device)
        assert FP8InferenceEngine(model, E5M2).fmt is E5M2
        with pytest.raises(ValueError, match="column"):
            FP8InferenceEngine(model, granularity="column")
        with pytest.raises(ValueError, match="no nn\\.Linear"):
            FP8InferenceEngine(nn.Sequential(nn.ReLU())).prepare()

    def test_engine_prepare(self, device):
        model = mlp(device)
        weights = copy.deepcopy(model.state_dict())
        prepared = FP8InferenceEngine(model).prepare()
        kinds = [fp8.FP8InferenceLinear, nn.GELU, fp8.FP8InferenceLinear]
        assert [type(one) for one in prepared] == kinds
        assert prepared[0].weight.dtype == prepared[2].weight.dtype == native_dtype(E4M3, device)
        assert not list(prepared.parameters())  # no float32 copy is kept
        assert all(type(one) is nn.Linear for one in (model[0], model[2]))
        assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())

    def test_engine_infer(self, device):
        model = mlp(device)
        prepared = (engine := FP8InferenceEngine(model)).prepare()
        x = torch.randn(7, 5, 64, device=device)
        dtype = native_dtype(E4M3, device)
        hidden = ref.forward(x.reshape(35, 64), model[0].weight, dtype, "tensor").reshape(7, 5, 128)
        ref.assert_kernel(prepared[0](x), hidden + model[0].bias.detach().cpu().double())
        assert rms_error(engine.infer(x), model(x)) <= 0.06
        assert_path(prepared[0])

    def test_engine_infer_not_prepared(self, device):
        engine = FP8InferenceEngine(mlp(device))
        x = torch.randn(2, 64, device=device)
        for call in (lambda: engine.infer(x), engine.get_memory_savings, engine.get_layer_info):
            with pytest.raises(RuntimeError, match="prepare"):
                call()

    def test_engine_memory_savings(self, device):
        engine = FP8InferenceEngine(mlp(device))
        engine.prepare()
        savings = engine.get_memory_savings()
        weights, biases = 64 * 128 + 128 * 10, 128 + 10
        assert savings["original_bytes"] == 4 * (weights + biases)  # 38.4 KB; not 47.9 afterwards
        assert savings["fp8_weight_bytes"] == weights
        assert savings["scale_bytes"] == 2 * 4
        assert savings["fp8_bytes"] == weights + 4 * biases + 2 * 4 == 10_032
        assert savings["weight_saved_fraction"] == 0.75

    def test_engine_layer_info(self, device):
        model = mlp(device)
        engine = FP8InferenceEngine(model)
        engine.prepare()
        info = engine.get_layer_info()
        assert list(info) == ["0", "2"]
        assert [one["weight_bytes"] for one in info.values()] == [64 * 128, 128 * 10]
        for one, layer in zip(info.values(), (model[0], model[2]), strict=True):
            assert one["weight_scale"].item() == ref.scale_of(layer.weight, E4M3)
            assert (one["input_scale"], one["path_taken"]) == (None, "none yet")

    def test_engine_with_calibration(self, device):
        model = mlp(device)
        batches = torch.randn(3, 16, 64, device=device)
        batches[0] *= 2  # the largest number is in the first batch
        engine = FP8InferenceEngine(model)
        first = engine.prepare(batches)[0]
        assert first.input_scale.item() == ref.scale_of(batches, E4M3)
        assert rms_error(engine.infer(batches[0]), model(batches[0])) <= 0.06
        largest = batches.abs().max().expand(1, 64)
        assert torch.equal(first(4 * largest), first(largest))  # larger inputs only saturate
        assert model.training


class TestModelConversion:
    def test_convert_model(self, device):
        converted = fp8.convert_model_to_native_fp8(mlp(device), skip=("2",))
        assert [type(one) for one in converted] == [NativeFP8Linear, nn.GELU, nn.Linear]
        with pytest.raises(ValueError, match="no nn\\.Linear"):
            fp8.convert_model_to_native_fp8(nn.ReLU())

    def test_convert_model_inplace(self, device):
        model = mlp(device)
        before = list(model.parameters())
        assert fp8.convert_model_to_native_fp8(model, inplace=True) is model
        assert type(model[0]) is type(model[2]) is NativeFP8Linear
        assert list(map(id, before)) == list(map(id, model.parameters()))  # optimisers stay valid

    def test_convert_model_not_inplace(self, device):
        model = mlp(device)
        converted = fp8.convert_model_to_native_fp8(model)
        assert (type(model[0]), type(converted[0])) == (nn.Linear, NativeFP8Linear)
        assert torch.equal(converted[0].weight, model[0].weight)
        assert converted[0].weight.data_ptr() != model[0].weight.data_ptr()

    def test_converted_model_forward(self, device):
        model = mlp(device)
        converted = fp8.convert_model_to_native_fp8(model)
        x = torch.randn(32, 64, device=device)
        assert rms_error(converted(x), model(x)) <= 0.06

    def test_converted_model_backward(self, device):
        model = mlp(device)
        converted = fp8.convert_model_to_native_fp8(model)
        x, gradient = torch.randn(32, 64, device=device), torch.randn(32, 10, device=device)
        for one in (model, converted):
            one(x).backward(gradient)
        for one, wanted in zip(converted.parameters(), model.parameters(), strict=True):
            assert rms_error(one.grad, wanted.grad) <= 0.12


class TestNumericalStability:
    def test_large_values(self, device):
        x = torch.randn(64, 64, device=device) * 1e30
        for fmt, limit in ROUND_TRIP.items():
            assert rms_error(FP8QuantizedTensor.from_tensor(x, fmt).dequantize(), x) <= limit

    def test_small_values(self, device):
        x = torch.randn(64, 64, device=device) * 1e-30
        for fmt, limit in ROUND_TRIP.items():
            assert rms_error(FP8QuantizedTensor.from_tensor(x, fmt).dequantize(), x) <= limit
        zero = FP8QuantizedTensor.from_tensor(torch.zeros(4, 4, device=device))
        assert (zero.scale.item(), zero.dequantize().abs().max().item()) == (1.0, 0.0)

    def test_mixed_range(self, device):
        """A single scale for rows of very different magnitude rounds the smallest to zero."""
        sizes = torch.logspace(-6, 3, 64, device=device)[:, None]
        x = torch.randn(64, 64, device=device) * sizes
        single = FP8QuantizedTensor.from_tensor(x).dequantize()
        each = FP8QuantizedTensor.from_tensor(x, granularity=fp8.Granularity.ROW).dequantize()
        assert (single[0] == 0).all()
        assert rms_error(each / sizes, x / sizes) <= ROUND_TRIP[E4M3]

    def test_fp8_linear_numerical_stability(self, device):
        layer = NativeFP8Linear(64, 32, bias=False, device=device)
        for size in (1e-20, 1e-3, 1.0, 1e3, 1e20):
            x = torch.randn(16, 64, device=device) * size
            assert rms_error(layer(x), ref.exact(x, layer)) <= PRODUCT[E4M3]


class TestBenchmark:
    def test_benchmark_fp8_layer(self, device):
        size = (64, 48, 8)
        layers = fp8_benchmark.Layers.create(size, torch.bfloat16, "tensor", device)
        benchmark = fp8_benchmark.benchmark_of(layers, size, device, "bf16", False)
        with torch.inference_mode():
            outcome = run_benchmark(benchmark, pairs=4, at_least=4, budget_s=0.0, quiet=True)
        assert len(outcome.seconds("subject")) == len(outcome.seconds("baseline")) == 4
        assert 0.005 <= outcome.equality.error <= PRODUCT[E4M3] == outcome.equality.tolerance
        assert layers.plain.weight.nbytes == 64 * 48 * 2
        assert fp8_benchmark.storage(layers.float8, layers.plain) == (0.5, 4 / (64 * 48))
        assert (layers.float8.path_taken == "scaled_mm") == fp8.is_fp8_available(device)


class TestIntegration:
    def test_end_to_end_training(self, device):
        x = torch.randn(64, 64, device=device)
        target = x @ torch.randn(64, 10, device=device) / 8
        plain = mlp(device)
        model, start = fp8.convert_model_to_native_fp8(plain), copy.deepcopy(plain)
        loss, wanted = ref.train(model, x, target), ref.train(plain, x, target)
        assert loss <= 0.5
        assert abs(loss - wanted) <= 0.02
        for old, new in zip(start.parameters(), model.parameters(), strict=True):
            assert relative_error(new, old) > 0.05  # weights and biases are trained

    def test_fp8_with_standard_layers(self, device):
        front = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Flatten(), nn.LayerNorm(128)
        back = nn.Linear(128, 32), nn.GELU(), nn.Linear(32, 3)
        model = nn.Sequential(*front, *back).to(device)
        converted = fp8.convert_model_to_native_fp8(model)
        changed = [type(one) is NativeFP8Linear for one in converted]
        assert changed == [isinstance(one, nn.Linear) for one in model]
        x = torch.randn(16, 4, 16, device=device)
        assert rms_error(converted(x), model(x)) <= 0.08


@pytest.mark.parametrize("format_type", FP8Dtype, ids=lambda x: f"FP8Dtype.{x.name}")
def test_quantization_formats(device, format_type):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        ref.assert_quantised(torch.randn(64, 64, device=device, dtype=dtype), format_type)


@pytest.mark.parametrize(
    ("in_features", "out_features"), [(64, 64), (256, 128), (512, 512), (1024, 256)]
)
def test_layer_sizes(device, in_features, out_features):
    layer = NativeFP8Linear(in_features, out_features, device=device)
    assert_forward(layer, torch.randn(32, in_features, device=device))
    assert_path(layer)
