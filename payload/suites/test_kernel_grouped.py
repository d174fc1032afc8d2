"""The grouped product for many rows per expert: its numbers, and where it is taken."""

from __future__ import annotations

import pytest
import torch

from suites import interpreter
from suites.interpreter import needs_triton
from suites.moe_reference import layer_of
from suites.numerics import assert_close
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, Kernel, Request, grouped
from torchbridge.moe import Batch, Path, banks, paths
from torchbridge.moe.grouped import grouped_mm

COUNTS = [(3, 0, 5), (0, 0, 1), (64, 64), (200, 1, 0, 0, 77), (130,), (0,) * 9 + (33,)]
L4, H100 = Hardware.nvidia((8, 9)), Hardware.nvidia((9, 0))
BF16 = torch.bfloat16


def problem(counts, depth, width, dtype, device):
    """Return rows, weights, ends of the experts' rows and a gradient of the output."""
    total, experts = sum(counts), len(counts)
    ends = torch.tensor(counts, device=device).cumsum(0).to(torch.int32)
    rows = torch.randn(total, depth, device=device).to(dtype)
    weights = (torch.randn(experts, width, depth, device=device) / depth**0.5).to(dtype)
    upstream = torch.randn(total, width, device=device).to(dtype)
    return rows.requires_grad_(), weights.requires_grad_(), ends, upstream


def expected(rows, weights, counts, upstream):
    """Return the output and both gradients, expert by expert in float64."""
    rows, weights = (one.detach().cpu().double().requires_grad_() for one in (rows, weights))
    parts = zip(rows.split(list(counts)), weights, strict=True)
    output = torch.cat([part @ weight.T for part, weight in parts])
    return output, *torch.autograd.grad(output, (rows, weights), upstream.cpu().double())


class TestNumbers:
    @needs_triton
    @pytest.mark.parametrize(
        ("counts", "depth", "width", "dtype"),
        [
            (COUNTS[0], 64, 48, torch.float16),
            (COUNTS[1], 7, 3, torch.float32),
            (COUNTS[2], 33, 130, torch.float32),
            (COUNTS[3], 100, 45, torch.float16),
            (COUNTS[4], 1, 1, torch.float32),
            (COUNTS[5], 40, 64, torch.float16),
        ],
    )
    def test_output_and_gradients(self, device, counts, depth, width, dtype):
        rows, weights, ends, upstream = problem(counts, depth, width, dtype, device)
        output, gradients = interpreter.differentiate(
            "grouped.in_triton", upstream, rows, weights, ends
        )
        wanted = expected(rows, weights, counts, upstream)
        for one, should in zip((output, *gradients), wanted, strict=True):
            assert one.dtype == dtype
            assert_close(one, should, {torch.float32: 2e-5, torch.float16: 2e-3}[dtype])

    @needs_triton
    def test_tiles_for_many_rows(self, device):
        """Tiles for more than 128 rows per expert, with a last block of one row; x is strided."""
        counts = (257, 260)
        _, weights, ends, upstream = problem(counts, 40, 20, torch.float16, device)
        apart = torch.randn(517, 80, device=device, dtype=torch.float16)[:, ::2]
        apart = apart[:, :40].detach().requires_grad_()
        output, gradients = interpreter.differentiate(
            "grouped.in_triton", upstream, apart, weights, ends
        )
        wanted = expected(apart, weights, counts, upstream)
        for one, should in zip((output, *gradients), wanted, strict=True):
            assert_close(one, should, 2e-3)

    @pytest.mark.parametrize("counts", COUNTS)
    def test_the_librarys_way(self, device, counts):
        rows, weights, ends, upstream = problem(counts, 20, 12, torch.float32, device)
        output = grouped.by_library(rows, weights, ends)
        gradients = torch.autograd.grad(output, (rows, weights), upstream)
        wanted = expected(rows, weights, counts, upstream)
        for one, should in zip((output, *gradients), wanted, strict=True):
            assert_close(one, should, 2e-5)


class TestChoice:
    def path(self, monkeypatch, hardware, dtype=BF16, dispatch="auto", tokens=4096, **batch):
        """Return the path of a layer on `hardware`; before sm_90 torch's grouped product waits."""
        monkeypatch.setattr(paths, "hardware_of", lambda device: hardware)
        waits = "grouped_mm waits" if hardware.capability < (9, 0) else None
        monkeypatch.setattr(banks, "why_not", lambda *_, **__: waits)
        bank = layer_of("cpu", dtype, dispatch, 64, 128).experts
        given = Batch(torch.device("cuda"), dtype, tokens, 2, **batch)
        return bank.path(given, dispatch)

    @needs_triton
    def test_many_rows_where_torch_waits(self, monkeypatch):
        for gradient in (False, True):
            assert self.path(monkeypatch, L4, gradient=gradient) == Path("triton_grouped")
        assert self.path(monkeypatch, L4, spread=True) == Path("triton_grouped")
        assert self.path(monkeypatch, H100) == Path("grouped_mm")
        assert self.path(monkeypatch, L4, tokens=16) == Path("triton")
        assert self.path(monkeypatch, H100, dispatch="triton_grouped") == Path("triton_grouped")

    @needs_triton
    def test_what_the_library_does_better(self, monkeypatch):
        path = self.path(monkeypatch, L4, torch.float32)
        assert path.name == "segments"
        assert "triton_grouped the library multiplies float32 faster" in path.fallback
        request = Request(L4, BF16, variant="odd widths")
        kernel = next(k for k in REGISTRY.kernels("grouped_mm") if k.name == "triton")
        assert "multiples of 16" in kernel.objection(request)
        assert kernel.refusal(request) is None

    def test_a_kernel_is_given_what_autocast_picks(self, device):
        seen = []
        kernel = Kernel("grouped_mm", "x", lambda *given: seen.extend(given) or given[0])
        rows, weights, ends, _ = problem((3, 4), 16, 16, torch.float32, device)
        with torch.autocast(device.type, BF16):
            grouped_mm(rows, weights, ends, kernel)
        assert [one.dtype for one in seen] == [BF16, BF16, torch.int32]

    def test_a_layer_computes_by_it(self, monkeypatch):
        """A layer computes by the grouped kernel, which the library's loop replaces in the test."""
        kernel = Kernel("grouped_mm", "triton", grouped.by_library)
        monkeypatch.setattr(banks, "triton_kernel", lambda operation: kernel)
        monkeypatch.setattr(banks, "why_no_grouped_kernel", lambda *_, **__: None)
        layer = layer_of("cpu", torch.float32, "triton_grouped")
        other = layer_of("cpu", torch.float32, "segments")
        other.load_state_dict(layer.state_dict())
        x = torch.randn(90, 32)
        outputs = [one(x) for one in (layer, other)]
        assert_close(*outputs)
        assert layer.path_taken == "triton_grouped"
        slopes = (
            torch.autograd.grad(output.sum(), [*one.parameters()])
            for output, one in zip(outputs, (layer, other), strict=True)
        )
        for one, should in zip(*slopes, strict=True):
            assert_close(one, should)
