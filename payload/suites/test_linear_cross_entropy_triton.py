"""Cross-entropy's kernels in Triton, in its interpreter: the numbers of the library's way."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from suites import interpreter, matrix_reference
from suites.interpreter import needs_triton
from suites.numerics import assert_close
from suites.test_linear_cross_entropy import (
    DTYPES,
    REDUCTIONS,
    SETTINGS,
    draw,
    short,
    upstream_of,
)
from torchbridge.kernels.cross_entropy import cross_entropy_rows_by_library_


@needs_triton
class TestTriton:
    """The kernel between the products; they are the library's on every path."""

    @pytest.mark.parametrize("dtype", DTYPES[1:], ids=short)
    @pytest.mark.parametrize("name", SETTINGS)
    @pytest.mark.parametrize("classes", [3, 4096, 4999])
    def test_rows(self, device, dtype, name, classes):
        logits = (3 * torch.randn(6, classes, device=device)).to(dtype)
        target = torch.tensor([0, classes - 1, -100, 1, 2, 0], device=device)
        scale = torch.rand(6, device=device)
        wanted = logits.double().cpu().requires_grad_()
        eye = torch.eye(classes, dtype=torch.float64)
        how = {"ignore_index": -100, **SETTINGS[name]}
        target[2] = how["ignore_index"]
        expected = matrix_reference.cross_entropy(wanted, eye, target, reduction="none", **how)
        gradient = torch.autograd.grad(expected, wanted, scale.double().cpu())[0]
        settings = (how["ignore_index"], how.get("label_smoothing", 0.0), how.get("z_loss", 0.0))
        function = "cross_entropy.cross_entropy_rows_"
        for room in (classes, -(-classes // 64) * 64):
            given = torch.full((6, room), float("nan"), dtype=dtype, device=device)[:, :classes]
            given.copy_(logits)
            bare, same = interpreter.run(function, given, target, None, *settings, room)
            assert torch.equal(same, logits)
            losses, changed = interpreter.run(function, given, target, scale, *settings, room)
            assert torch.equal(bare, losses)
            assert_close(losses, expected.detach(), 1e-6)
            assert_close(changed, gradient)
            assert not changed.as_strided((6, room), (room, 1))[:, classes:].any()

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    @pytest.mark.parametrize("seed", range(5))
    def test_whole(self, device, reduction, seed):
        torch.manual_seed(seed)
        x, weight, target = draw(device, 70, 21, 777)
        how = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 0.01}
        upstream = upstream_of(target.float() if reduction == "none" else torch.ones(()))
        upstream = upstream.to(device)
        loss, actual = interpreter.differentiate(
            "cross_entropy.linear_cross_entropy", upstream, x, weight, target, **how
        )
        inputs = matrix_reference.leaves(x, weight)
        expected = matrix_reference.cross_entropy(*inputs, target, **how)
        assert_close(loss, expected)
        wanted = matrix_reference.gradients(expected, inputs, upstream)
        for one, should in zip(actual, wanted, strict=True):
            assert_close(one, should)

    def test_odd_rows_are_read_16_bytes_at_a_time(self, tmp_path, monkeypatch):
        from suites.triton_kernels import compile_of

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        ptx = compile_of("cross_entropy", "cross_entropy-bf16-gradient", "sm_90").asm["ptx"]
        assert ptx.count("ld.global.v4") >= 4
        assert ptx.count("ld.global.b16") <= 1  # the label's

    @pytest.mark.parametrize("dtype", DTYPES[1:], ids=short)
    def test_multiplied_in_place(self, device, dtype):
        x = torch.randn(70_001, device=device).to(dtype)
        for factor in (1.0, 0.3):
            wanted = (x.float() * factor).to(dtype)
            x = interpreter.run("cross_entropy.multiply_", x, torch.tensor(factor, device=device))
            assert torch.equal(x, wanted)

    @pytest.mark.parametrize("way", ["triton", "torch"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_logits_of_minus_infinity(self, device, way, smoothing):
        """A whole block of them; and one that is a label."""
        logits = torch.randn(3, 4999, device=device)
        logits[:2, :4100] = -float("inf")
        target = torch.tensor([4200, 7, 7], device=device)
        wanted = logits.double().requires_grad_()
        expected = F.cross_entropy(wanted, target, reduction="none", label_smoothing=smoothing)
        expected.sum().backward()
        kernel = partial(interpreter.run, "cross_entropy.cross_entropy_rows_")
        run = kernel if way == "triton" else cross_entropy_rows_by_library_
        made = run(logits, target, torch.ones(3, device=device), -100, smoothing, 0.0)
        for one, should in zip(made, (expected.detach(), wanted.grad), strict=True):
            torch.testing.assert_close(one.double(), should, rtol=1e-5, atol=1e-6)

    def test_a_target_that_is_no_class_gives_nan(self, device):
        x, weight, target = draw(device, 4, 8, 50)
        for wrong in (50, -1):
            target[:] = torch.tensor([3, wrong, -100, 49])
            how = {"reduction": "none"}
            losses = interpreter.run(
                "cross_entropy.linear_cross_entropy", x.detach(), weight.detach(), target, **how
            )
            assert losses.isnan().tolist() == [False, True, False, False]
            _, (x_grad, _) = interpreter.differentiate(
                "cross_entropy.linear_cross_entropy",
                torch.ones_like(losses),
                x,
                weight,
                target,
                **how,
            )
            assert x_grad.isnan().any(1).tolist() == [False, True, False, False]

    def test_logits_must_be_rows(self):
        from torchbridge.kernels.gpu.cross_entropy import cross_entropy_rows_

        with pytest.raises(ValueError, match=r"logits \(4, 3\) of torch.float32, \(1, 4\)"):
            cross_entropy_rows_(torch.zeros(3, 4).T, torch.zeros(4).long(), None)
