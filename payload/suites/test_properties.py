"""Laws that hold for all inputs, tried on inputs that nobody thought of."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchbridge import fp8
from torchbridge.export import OptimizationMetadata, Plan, draw_inputs
from torchbridge.export.formats import load_safetensors, stored_tensors
from torchbridge.export.metadata import FusionMetadata, HardwareMetadata
from torchbridge.export.publish import difference
from torchbridge.hardware import Hardware
from torchbridge.kernels import Kernel, KernelRefused, KernelRegistry, Request
from torchbridge.moe import MoEConfig
from torchbridge.timing import Comparison, Spread

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

SHARED = list(hypothesis.HealthCheck)  # the seed fixture is the same for every example: as wanted
LAW = settings(
    max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=SHARED
)
SECONDS = st.floats(1e-6, 1e3)
SAMPLES = st.lists(SECONDS, min_size=1, max_size=30)
SEEDS = st.integers(0, 2**32 - 1)
FORMATS = st.sampled_from(list(fp8.FP8Dtype))
DTYPES = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool])
SHAPES = st.lists(st.integers(0, 4), max_size=3)
CHIPS = [Hardware.nvidia(c) for c in ((7, 5), (8, 6), (8, 9), (9, 0), (10, 0))]
CHIPS += [Hardware.amd("gfx942"), Hardware.amd("gfx1100"), Hardware("cpu", "cpu", "x86_64")]


def numbers(seed: int, *shape: int, spread: float = 1.0) -> torch.Tensor:
    """Normal numbers times e ** (spread * normal numbers), on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.randn(shape, generator=generator) * spread
    return torch.randn(shape, generator=generator) * size.exp()


class TestMoE:
    @LAW
    @given(
        tokens=st.integers(1, 500),
        experts=st.integers(1, 32),
        top_k=st.integers(1, 4),
        factor=st.decimals("0.1", "3", places=2),
    )
    def test_capacity_is_the_exact_quotient(self, tokens, experts, top_k, factor):
        top_k = min(top_k, experts)
        config = MoEConfig(
            num_experts=experts, top_k=top_k, capacity_factor=float(factor), min_capacity=0
        )
        exact = math.ceil(Fraction(factor) * tokens * top_k / experts)
        assert config.capacity(tokens) == min(tokens, exact)


class TestFP8:
    @LAW
    @given(seed=SEEDS, fmt=FORMATS, spread=st.floats(0, 3), rows=st.integers(1, 9))
    def test_round_trip_is_off_by_half_an_ulp(self, seed, fmt, spread, rows):
        x = numbers(seed, rows, 17, spread=spread)
        scale = fp8.compute_fp8_scale(x, fmt)
        back = fp8.dequantize_from_fp8(fp8.quantize_to_fp8(x, scale, fmt), scale, torch.float32)
        info = torch.finfo(torch.float8_e4m3fn if fmt is fp8.FP8Dtype.E4M3 else torch.float8_e5m2)
        relative = info.eps / 2
        smallest = info.smallest_normal * info.eps / 2 / scale.item()  # half a subnormal step
        bound = (relative * x.abs()).clamp_min(smallest) * (1 + 1e-5)
        assert bool(((back - x).abs() <= bound).all())

    @LAW
    @given(seed=SEEDS, fmt=FORMATS, shift=st.integers(-20, 20))
    def test_powers_of_two_change_nothing(self, seed, fmt, shift):
        x = numbers(seed, 5, 8)
        scale = fp8.compute_fp8_scale(x, fmt)
        plain = fp8.quantize_to_fp8(x, scale, fmt)
        shifted = fp8.quantize_to_fp8(x * 2.0**shift, scale * 2.0**-shift, fmt)
        assert torch.equal(plain.view(torch.uint8), shifted.view(torch.uint8))

    @LAW
    @given(seed=SEEDS, fmt=FORMATS)
    def test_order_is_kept(self, seed, fmt):
        x = numbers(seed, 64, spread=2.0).sort().values
        quantized = fp8.quantize_to_fp8(x, fp8.compute_fp8_scale(x, fmt), fmt).float()
        assert bool((quantized.diff() >= 0).all())
        assert quantized.abs().max().item() == fmt.max  # the whole range is used


class TestExport:
    @LAW
    @given(
        sizes=st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 3)),
        least=st.integers(1, 3),
        room=st.integers(0, 4),
        dtype=st.sampled_from([torch.float32, torch.int64, torch.bool]),
    )
    def test_drawn_inputs_keep_to_their_bounds(self, sizes, least, room, dtype):
        batch, length, width = sizes[0], max(sizes[1], least), sizes[2]
        most = length + room + 1
        names = {0: Dim("batch"), 1: Dim("length", min=least, max=most)}
        sample = (torch.arange(batch * length * width) % 5).reshape(batch, length, width).to(dtype)
        checks = draw_inputs((sample,), (names,))
        own = set(sample.flatten().tolist())
        for (one,) in checks:
            assert (one.shape[0] >= 1, least <= one.shape[1] <= most) == (True, True)
            assert (one.shape[2], one.dtype) == (width, dtype)
            assert len(own) == 1 or set(one.flatten().tolist()) <= own
        assert len({tuple(one.shape) for (one,) in checks}) >= 2
        assert min(Plan.of(sample, (names,)).example[0].shape[:2]) >= 2

    @LAW
    @given(seed=SEEDS, shift=st.integers(-30, 30))
    def test_difference_has_no_unit(self, seed, shift):
        a, b = numbers(seed, 9), numbers(seed + 1, 9)
        told = difference(a, b)
        assert difference(a * 2.0**shift, b * 2.0**shift) == told
        assert difference(b, b) == 0.0 < told

    @LAW
    @given(
        shapes=st.lists(st.tuples(SHAPES, DTYPES), min_size=1, max_size=5),
        seed=SEEDS,
        alias=st.booleans(),
    )
    def test_safetensors_bit_for_bit(self, tmp_path_factory, shapes, seed, alias):
        safetensors = pytest.importorskip("safetensors.torch", reason="safetensors not installed")
        model, fresh = nn.Module(), nn.Module()
        for number, (shape, dtype) in enumerate(shapes):
            value = (
                (numbers(seed + number, *shape) * 3).to(dtype).movedim(0, -1)
                if shape
                else (numbers(seed + number).to(dtype))
            )
            model.register_buffer(f"b{number}", value)
            fresh.register_buffer(f"b{number}", torch.zeros_like(value))
        if alias:
            model.register_buffer("alias", model.b0)
            fresh.register_buffer("alias", torch.zeros_like(model.b0))
        path = tmp_path_factory.mktemp("law") / "m.safetensors"
        tensors, aliases = stored_tensors(model)
        assert aliases == ({"alias": "b0"} if alias and model.b0.numel() else {})

        safetensors.save_file(tensors, path, {"aliases": json.dumps(aliases)})
        load_safetensors(path, fresh)
        for name, value in model.state_dict().items():
            assert torch.equal(bits(fresh.state_dict()[name]), bits(value))

    @LAW
    @given(
        texts=st.lists(st.text(max_size=20), min_size=4, max_size=4),
        counts=st.lists(st.integers(0, 2**62), min_size=3, max_size=3),
        dtypes=st.lists(st.sampled_from(["float32", "int8"]), max_size=3),
        passes=st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=3),
    )
    def test_metadata_comes_back(self, texts, counts, dtypes, passes):
        metadata = OptimizationMetadata(
            model=texts[0],
            level=texts[1],
            parameters=counts[0],
            bytes=counts[1],
            dtypes=tuple(dtypes),
            passes=passes,
            fusions=(FusionMetadata(texts[2], ("linear", texts[3])),),
            hardware=HardwareMetadata(
                name=texts[3], memory_bytes=counts[2], features=tuple(dtypes)
            ),
        )
        assert OptimizationMetadata.from_json(metadata.to_json()) == metadata
        assert "\n" not in metadata.to_json()


class TestKernels:
    @LAW
    @given(
        needs=st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from([None, (7, 5), (8, 0), (8, 9), (9, 0)]),
                st.frozensets(st.sampled_from(["fp8", "bf16", "matrix_cores"]), max_size=2),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        ),
        chip=st.sampled_from(CHIPS),
        gradient=st.booleans(),
    )
    def test_registry_takes_the_best_that_can(self, needs, chip, gradient):
        registry = KernelRegistry()
        able = []
        for number, (rank, capability, features, differentiable) in enumerate(needs):
            registry.register(
                Kernel(
                    "op",
                    str(number),
                    print,
                    rank,
                    capability=capability,
                    features=features,
                    differentiable=differentiable,
                )
            )
            strong = capability is None or (chip.capability or (0, 0)) >= capability
            if strong and features <= chip.features and (differentiable or not gradient):
                able.append((-rank, number))
        request = Request(chip, gradient=gradient)
        if not able:
            with pytest.raises(KernelRefused):
                registry.lookup("op", request)
            return
        choice = registry.lookup("op", request)
        assert choice.kernel.name == str(min(able)[1])
        better = [one for one in registry.kernels("op") if one.name in choice.refused]
        assert all(one.refusal(request) == choice.refused[one.name] for one in better)
        assert dataclasses.replace(request, gradient=False) == Request(chip)


class TestTiming:
    @LAW
    @given(samples=SAMPLES)
    def test_spread_lies_within(self, samples):
        spread = Spread.of(samples)
        ordered = [min(samples), spread.low, spread.median, spread.high, max(samples)]
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(ordered))
        assert spread.median == pytest.approx(statistics.median(samples))

    @LAW
    @given(pairs=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=20))
    def test_interval_lies_within_the_ratios(self, pairs):
        subject, baseline = zip(*pairs, strict=True)
        result = Comparison(subject, baseline)
        low, high = result.interval()
        assert min(result.ratios) <= low <= high <= max(result.ratios)

    @LAW
    @given(load=SAMPLES, factor=st.sampled_from([0.5, 2.0, 8.0]))
    def test_shared_load_cancels(self, load, factor):
        result = Comparison(tuple(load), tuple(factor * one for one in load))
        assert result.interval() == (factor, factor)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes in reading order."""
    return tensor.contiguous().flatten().view(torch.uint8)
