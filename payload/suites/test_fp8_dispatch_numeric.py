"""The choice between float8 and other dtypes: bytes by hand, fake hardware, reasons."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import fp8 as benchmark
from suites import fp8_reference as ref
from suites.numerics import assert_close, rms_error
from suites.operators import VIEWS, Operators, name_of
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import (
    FP8Dtype,
    FP8InferenceLinear,
    Job,
    NativeFP8Linear,
    choose,
    dispatch,
    linear,
    predict,
)
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels import KernelRefused

SXM = {"units": 132, "clock_hz": 1.83e9, "memory_bytes_per_s": 3.35e12}
H100 = Hardware.nvidia((9, 0), **SXM)
L4 = Hardware.nvidia((8, 9), units=58, clock_hz=2.04e9, memory_bytes_per_s=300e9)
A10G = Hardware.nvidia((8, 6), units=80, clock_hz=1.71e9, memory_bytes_per_s=600e9)
MI300X = Hardware.amd("gfx942", units=304, clock_hz=2.1e9, memory_bytes_per_s=5.3e12)
ROCM_TELLS = Hardware.amd("gfx942", units=304, clock_hz=2.1e9)  # no bandwidth
CPU = Hardware.cpu(("avx2",))
LARGE, SMALL = (4096, 4096, 4096), (512, 512, 512)
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.fixture
def on_h100(monkeypatch):
    """Make the layers predict for an H100."""
    monkeypatch.setattr(dispatch, "hardware_of", lambda device: H100)
    dispatch._choose_for.cache_clear()  # noqa: SLF001
    yield
    dispatch._choose_for.cache_clear()  # noqa: SLF001


class TestBytes:
    """The bytes of a job with 100 rows, inner size 300 and 200 columns.

    x has 30,000 numbers, the weight 60,000, the output 20,000.
    """

    SIZES = (100, 300, 200)

    ONE = 2.0 * 100 * 300 * 200

    def test_plain(self):
        assert Job(*self.SIZES).plain() == [(self.ONE, 2 * 110_000)]
        assert Job(*self.SIZES, FP32, FP32, training=True).plain() == [(self.ONE, 4 * 110_000)] * 3
        assert Job(*self.SIZES, BF16, FP32).plain()[1:] == [(0, 6 * 60_000)]
        assert Job(*self.SIZES, stored=True).plain()[1:] == [(0, 3 * 60_000)]

    def products(self, *of, **how):
        """Return the operations of a float8 job without those that quantise."""
        job = Job(*self.SIZES, *of, **how)
        return job.float8()[len(job.quantising()) :]

    def test_products(self):
        assert self.products() == [(self.ONE, 90_000 + 40_000)]
        assert self.products(BF16, FP32, training=True) == [
            (self.ONE, 90_000 + 2 * 20_000),
            (self.ONE, 80_000 + 2 * 30_000),
            (self.ONE, 50_000 + 4 * 60_000),
        ]

    def test_split_products(self):
        """Three split products are over 300 columns, two over 200, one over 100; float32 sums."""
        three, two = (self.ONE / 3, 30_000 + 80_000), (self.ONE / 2, 40_000 + 120_000)
        wanted = [three] * 3 + [(0, 240_000)] * 3 + [two] * 2 + [(0, 360_000)] * 2
        wanted += [(self.ONE, 50_000 + 240_000), (0, 720_000)]
        assert self.products(granularity="block", training=True, split=True) == wanted

    def test_quantising(self):
        assert Job(*self.SIZES, kept=True).quantising() == [60_000, 90_000]
        assert Job(*self.SIZES, stored=True).quantising() == [60_000, 90_000]
        assert Job(*self.SIZES, granularity="row").quantising() == [90_000, 180_000]
        assert Job(*self.SIZES, BF16, FP32).quantising() == [60_000, 90_000, 240_000, 300_000]
        single = Job(*self.SIZES, training=True).quantising()
        assert single[-5:] == [40_000, 60_000, 60_000, 120_000, 40_000]  # copies, transposed
        rows = Job(*self.SIZES, granularity="row", training=True).quantising()
        assert rows == [90_000, 180_000, 60_000, 90_000, 180_000, 60_000]  # quantised twice


class TestPrediction:
    def test_by_hand(self):
        """All sizes are 4096: 137.4 GFLOP at 989 and 1979 TFLOP/s.

        x is read twice and written once.
        """
        told = predict(Job(*LARGE, kept=True), H100)
        flops, numbers = 2 * 4096**3, 4096**2
        assert told.plain_s == pytest.approx(flops / (4096 * 132 * 1.83e9))
        quantising = 5 * numbers / 3.35e12
        assert told.float8_s == pytest.approx(flops / (8192 * 132 * 1.83e9) + quantising)
        assert told.ratio == pytest.approx(1.47, abs=0.01)

    def test_what_limits(self):
        launch = dispatch.LAUNCH_S["nvidia"]
        assert predict(Job(8, 8, 8), H100).plain_s == launch
        assert predict(Job(8, 8, 8, kept=True), H100).float8_s == 3 * launch
        decode = predict(Job(16, 4096, 4096, kept=True), L4)
        moved = 2 * (4096**2 + 2 * 16 * 4096) / 300e9
        assert decode.plain_s == pytest.approx(moved)
        assert predict(Job(16, 4096, 4096, FP32, FP32), L4).plain_s == pytest.approx(2 * moved)

    def test_numbers_of_the_plain_arm(self):
        exact = predict(Job(*LARGE, FP32, FP32), H100).plain_s
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            assert exact == pytest.approx(8 * predict(Job(*LARGE, FP32, FP32), H100).plain_s)
        finally:
            torch.set_float32_matmul_precision(before)
        assert predict(Job(*LARGE, torch.float64), H100) is None


class TestChoice:
    @pytest.mark.parametrize(
        ("hardware", "sizes", "options", "float8"),
        [
            (H100, LARGE, {"kept": True}, True),
            (H100, LARGE, {"training": True}, True),
            (H100, (2048, 2048, 2048), {"training": True}, False),
            (H100, SMALL, {"kept": True}, False),
            (H100, SMALL, {"training": True}, False),
            (H100, (16, 4096, 4096), {}, False),  # the weight is quantised for 16 rows
            (H100, LARGE, {"granularity": "block", "split": True}, False),
            (L4, LARGE, {"kept": True}, True),
            (L4, (16, 4096, 4096), {"kept": True}, True),  # float8 halves the bytes
            (L4, (16, 4096, 4096), {"training": True}, False),
            (L4, SMALL, {"kept": True}, False),
            (A10G, LARGE, {"kept": True}, False),
            (A10G, LARGE, {"stored": True}, False),
            (MI300X, LARGE, {"kept": True}, True),
            (MI300X, SMALL, {"kept": True}, False),
            (ROCM_TELLS, LARGE, {"kept": True}, False),
            (ROCM_TELLS, LARGE, {"stored": True}, True),
            (CPU, LARGE, {"kept": True}, False),
            (CPU, LARGE, {"stored": True}, False),
        ],
    )
    def test_on(self, hardware, sizes, options, float8):
        made = choose(Job(*sizes, **options), hardware)
        assert made.float8 is float8
        assert made.plain.name == ("weight_only" if options.get("stored") else "bf16")
        assert made.plain.fallback == made.reason

    @pytest.mark.parametrize(
        ("job", "hardware", "reason"),
        [
            (Job(*LARGE), A10G, "no FP8 units on sm_86"),
            (
                Job(*LARGE, kept=True),
                H100,
                "predicted 1.47x faster than bf16, 4096 x 4096 x 4096 on sm_90",
            ),
            (
                Job(*SMALL, kept=True),
                H100,
                "predicted 3.00x slower in float8, 512 x 512 x 512 on sm_90",
            ),
            (
                Job(*LARGE, FP32, FP32, kept=True),
                H100,
                "predicted 19.41x faster than fp32, 4096 x 4096 x 4096 on sm_90",
            ),
            (
                Job(*LARGE),
                ROCM_TELLS,
                "not predicted: the peaks of gfx942 are unknown",
            ),
        ],
        ids=["no units", "faster", "slower", "float32", "unknown peaks"],
    )
    def test_reasons(self, job, hardware, reason):
        assert choose(job, hardware).reason == reason


def widest(function, args, made) -> int:
    """Return the size of the largest tensor of an operator; 0 for a view."""
    tensors = [one for one in (*args, made) if isinstance(one, torch.Tensor)]
    computes = name_of(function, args, made) not in VIEWS
    return max(one.numel() for one in tensors) if computes else 0


def multiplied(function, args, made) -> torch.dtype | None:
    """Return the dtype of the operands of a matrix product; None for another operator."""
    return args[0].dtype if name_of(function, args, made) == "mm" else None


class TestEager:
    """Without a compiler each operation of the quantisation is predicted as a kernel of its own."""

    @pytest.mark.parametrize("dtype", [FP32, BF16])
    def test_the_kernels_are_those_that_run(self, dtype):
        x = torch.randn(8, 64, dtype=dtype)
        with Operators(widest) as operators:
            fp8.FP8QuantizedTensor.from_tensor(x)
        job = Job(8, 64, 64, dtype, dtype, kept=True, fused=False)
        sizes = [size for size in operators.seen if size]
        assert len(job.quantising()) == len(sizes)
        wide = sum(size == x.numel() for size in sizes)
        assert len(job.quantising()) - wide == dispatch.SCALE_KERNELS

    def test_what_is_compiled_is_fused(self, on_h100, monkeypatch):
        """For one layer, bfloat16 is faster in eager mode, and float8 if compiled."""
        of = torch.device("cpu"), *LARGE, BF16, BF16, "tensor", False, True, False, False
        eager = dispatch.choose_for(*of)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        fused = dispatch.choose_for(*of)
        assert (eager.float8, fused.float8) == (False, True)
        assert eager.reason.endswith("slower in float8, 4096 x 4096 x 4096 on sm_90")


class TestDefault:
    """Without a given path, the path with the shorter predicted time is taken."""

    def test_layers(self):
        plain = nn.Linear(32, 16)
        engine = fp8.FP8InferenceEngine(nn.Sequential(plain))
        layers = NativeFP8Linear(32, 16), FP8InferenceLinear(plain), fp8.FP8LinearLayer(32, 16)
        converted = fp8.convert_model_to_native_fp8(plain)
        trained = fp8.convert_model_to_fp8_training(plain)
        made = (*layers, engine.prepare()[0], converted, trained)
        assert {one.path for one in made} == {"predicted"}
        assert {one.path for one in (NativeFP8Linear(8, 8, path="auto"),)} == {"auto"}


class TestWithoutUnits:
    """FP8 on an A10G: nothing is compiled, and the product is computed in the output's dtype."""

    def test_why_not_compiled(self):
        wanted = (
            "no FP8 units on sm_86: Triton has no float8 there, so that nothing can be compiled"
        )
        assert fp8.why_not_compiled(torch.device("cuda"), A10G) == wanted
        assert fp8.why_not_compiled(torch.device("cuda"), L4) is None
        assert fp8.why_not_compiled(torch.device("cpu"), CPU) is None

    def test_the_benchmark_is_refused(self, monkeypatch, capsys, evidence):
        """The benchmark is refused, also in `benchmarks.gpu`, before it allocates on the device."""
        for name, value in (("probe", A10G), ("describe", "an A10G")):
            monkeypatch.setattr(benchmark, name, lambda device, value=value: value)
        monkeypatch.setattr(benchmark, "pick_device", lambda: torch.device("cuda"))
        assert benchmark.main([]) == 1
        assert "refused on an A10G: no FP8 units on sm_86" in capsys.readouterr().out
        (event,) = evidence()
        assert (event["check"], event["outcome"]) == ("fp8/units", "failed")
        assert event["reason"].startswith("no FP8 units on sm_86")
        with pytest.raises(KernelRefused, match="no FP8 units on sm_86"):
            benchmark.fp8_arms((64, 64, 64), torch.device("cuda"))

    @pytest.mark.parametrize("dtype", [BF16, torch.float16, FP32])
    def test_the_dtype_of_the_product(self, dtype):
        """The product is in the output's dtype, as 16-bit products are the fastest on a GPU.

        The test uses the meta device.
        """
        codes = torch.empty(16, 32, dtype=torch.float8_e4m3fn, device="meta")
        one = fp8.FP8QuantizedTensor(codes, torch.empty((), device="meta"), dtype)
        with Operators(multiplied) as products:
            out, _ = fp8.scaled_matmul(one, one, out_dtype=dtype, path="dequantised")
        assert (set(products.seen) - {None}, out.dtype) == ({dtype}, dtype)

    def test_the_cpu_sums_in_float32(self):
        x = fp8.FP8QuantizedTensor.from_tensor(torch.randn(16, 32))
        with Operators(multiplied) as products:
            fp8.scaled_matmul(x, x, out_dtype=BF16, path="dequantised")
        assert set(products.seen) - {None} == {FP32}


class TestLayers:
    @pytest.mark.parametrize("granularity", ["tensor", "row", "block"])
    def test_without_units_it_is_the_plain_layer(self, device, granularity):
        if probe(device).has("fp8"):
            pytest.skip(f"{device} has FP8 units")
        layer = NativeFP8Linear(64, 32, granularity=granularity, path="predicted", device=device)
        x = torch.randn(2, 8, 64, device=device, requires_grad=True)
        out = layer(x)
        assert torch.equal(out, F.linear(x, layer.weight, layer.bias))
        why = f"no FP8 units on {probe(device).target}"
        assert layer.path_taken == f"fp32 ({why})"
        assert (layer.fallback, {one.name for one in layer.paths.values()}) == (why, {"fp32"})
        out.square().sum().backward()
        by_weight = (2 * out).reshape(16, 32).t() @ x.reshape(16, 64)
        assert_close(layer.weight.grad, by_weight.detach(), 1e-5)
        with torch.autocast(device.type, BF16):
            assert layer(x).dtype == BF16
        assert layer.path_taken == f"bf16 ({why})"

    @pytest.mark.parametrize("fmt", list(FP8Dtype))
    @pytest.mark.parametrize("granularity", ["tensor", "row", "block"])
    def test_stored_weights_without_units(self, device, granularity, fmt):
        if probe(device).has("fp8"):
            pytest.skip(f"{device} has FP8 units")
        plain = nn.Linear(150, 70, device=device)
        layer = FP8InferenceLinear(plain, fmt=fmt, granularity=granularity, path="predicted")
        x = torch.randn(3, 11, 150, device=device)
        tiles = {"tensor": (None, None), "row": (1, None), "block": (128, 128)}[granularity]
        weight = ref.snapped(plain.weight, native_dtype(fmt, device), tiles)
        wanted = F.linear(x.cpu().double(), weight, plain.bias.detach().cpu().double())
        assert_close(layer(x), wanted, 1e-5)  # x is not quantised
        assert rms_error(layer(x), ref.exact(x, plain)) <= ref.ROUND_TRIP[fmt]
        assert layer.path_taken == f"weight_only (no FP8 units on {probe(device).target})"
        assert layer.fallback == f"no FP8 units on {probe(device).target}"

    def test_where_float8_wins(self, on_h100, monkeypatch):
        """The layer computes in float8, gives the reason, and rounds the rows up to 4,096."""
        plain = nn.Linear(4096, 4096, bias=False)
        monkeypatch.setattr(linear, "scaled_matmul", self.record)
        layer = NativeFP8Linear(4096, 4096, bias=False, path="predicted")
        layer.weight = plain.weight
        self.asked = []
        layer.eval()(torch.zeros(4000, 4096))
        assert self.asked == [{"path": "auto", "fast_accum": True}]
        assert layer.path_taken.endswith("4096 x 4096 x 4096 on sm_90)")
        assert "faster than fp32" in layer.path_taken
        layer(torch.zeros(2049, 4096))
        assert "4096 x 4096 x 4096" in layer.path_taken

    def record(self, a, b, *, out_dtype, **how):
        """Record the options of a product, and return zeros."""
        self.asked.append(how)
        return torch.zeros(a.shape[0], b.shape[0], dtype=out_dtype), None

    def test_what_is_asked(self, monkeypatch):
        """A layer's job describes its dtypes, its gradients and whether the weight is kept."""
        jobs = []

        def choose_for(device, *of):
            jobs.append(Job(*of))
            return dispatch.choose(jobs[-1], CPU)

        monkeypatch.setattr(linear, "choose_for", choose_for)
        layer = NativeFP8Linear(64, 32, granularity="row", path="predicted")
        x = torch.randn(8, 64, dtype=torch.float64)
        layer(x)
        assert jobs[-1] == Job(8, 64, 32, torch.float64, FP32, "row", training=True)
        with torch.no_grad():
            layer(x)
        assert jobs[-1] == Job(8, 64, 32, torch.float64, FP32, "row")
        layer.eval().requires_grad_(False)(x)
        assert jobs[-1] == Job(8, 64, 32, torch.float64, FP32, "row", kept=True)
        layer(x.requires_grad_())
        assert jobs[-1].training

    def test_training_by_config(self, device):
        model = ref.mlp(device)
        engine = fp8.create_fp8_trainer(model, path="predicted")
        x = torch.randn(64, 64, device=device)
        loss = engine.training_step(x, torch.randn(64, 10, device=device))
        assert loss > 0
        paths = engine.statistics()["layer_paths"]["0"]
        if not probe(device).has("fp8"):
            assert {one.name for one in paths.values()} == {"fp32"}
        assert model[0].weight.grad.abs().max() > 0
        with pytest.raises(ValueError, match="path='fast'"):
            fp8.FP8Config(path="fast")
        with pytest.raises(ValueError, match="none of auto, scaled_mm, dequantised"):
            fp8.scaled_matmul(*[layer_operand(x)] * 2, path="predicted")  # a path of layers only


def layer_operand(x):
    """Return x quantised to float8."""
    return fp8.FP8QuantizedTensor.from_tensor(x)
