"""The 32 named tests of FlashAttentionV3: attention on q, k, v by the fastest kernel available."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from suites.attention_reference import by_mask, inputs, lower_triangle, scaled_scores, weigh
from suites.numerics import assert_close, needs_cuda
from suites.operators import Operators
from torchbridge import attention as att
from torchbridge.attention import FlashAttentionV3, attend, create_flash_attention_v3


def assert_attends(module: FlashAttentionV3, *qkv: torch.Tensor) -> None:
    """Check that the output equals the float64 reference, with a causal mask if wanted."""
    size = qkv[0].shape[2], qkv[1].shape[2]
    mask = lower_triangle(*size) if module.causal else None
    assert_close(module(*qkv), by_mask(*qkv, mask))


class TestFlashAttentionV3Module:
    def test_module_initialization(self):
        module = FlashAttentionV3(causal=True, dropout=0.1)
        assert (module.causal, module.dropout, module.scale) == (True, 0.1, None)
        assert (module.path, module.path_taken) == ("auto", None)
        assert list(module.parameters()) == []

    def test_module_initialization_with_scale(self, device):
        module = FlashAttentionV3(scale=0.3)
        q, k, v = inputs(device, 17)
        assert_close(module(q, k, v), weigh(scaled_scores(q, k, 0.3), v))
        same = FlashAttentionV3(scale=0.25)(q, k, v)  # 1 / sqrt(16)
        assert torch.equal(same, FlashAttentionV3()(q, k, v))

    def test_factory_function(self, device):
        module = create_flash_attention_v3(causal=True, scale=0.5, path="explicit")
        assert (type(module), module.causal, module.scale) == (FlashAttentionV3, True, 0.5)
        q, k, v = inputs(device, 17)
        scores = scaled_scores(q, k, 0.5).masked_fill(~lower_triangle(17, 17), -math.inf)
        assert_close(module(q, k, v), weigh(scores, v))
        assert module.path_taken == "explicit[scores]"

    def test_extra_repr(self):
        assert repr(FlashAttentionV3(causal=True, dropout=0.1)) == (
            "FlashAttentionV3(causal=True, dropout=0.1, scale=1/sqrt(head_dim), path=auto)"
        )
        assert "scale=0.5, path=sdpa)" in repr(FlashAttentionV3(scale=0.5, path="sdpa"))


class TestFlashAttentionV3Correctness:
    @pytest.mark.parametrize("head_dim", [64, 128])
    def test_correctness_optimized_head_dims(self, device, head_dim):
        assert_attends(FlashAttentionV3(), *inputs(device, 128, heads=8, width=head_dim))

    @pytest.mark.parametrize("seq_len", [32, 64, 128, 256, 512])
    def test_correctness_various_sequence_lengths(self, device, seq_len):
        for causal in (False, True):
            assert_attends(FlashAttentionV3(causal), *inputs(device, seq_len, width=64))

    def test_correctness_causal_masking(self, device):
        module = FlashAttentionV3(causal=True)
        q, k, v = inputs(device, 64, width=64)
        before = module(q, k, v)
        assert_close(before, by_mask(q, k, v, lower_triangle(64, 64)))
        assert_close(before[:, :, 0], v[:, :, 0])  # the first query sees only its own key
        v[:, :, -1] += 10
        k[:, :, -1] += 10
        after = module(q, k, v)
        assert torch.equal(before[:, :, :-1], after[:, :, :-1])
        assert (before - after)[:, :, -1].abs().max() > 1

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_correctness_different_dtypes(self, device, dtype):
        assert_attends(FlashAttentionV3(causal=True), *inputs(device, 100, width=64, dtype=dtype))

    def test_output_shape(self, device):
        q, k, v = inputs(device, 7, 19, heads=6, groups=2, width=24)
        output = FlashAttentionV3()(q, k, v)
        assert output.shape == (2, 6, 7, 24)
        assert_close(output, by_mask(q, k, v))

    def test_output_dtype(self, device):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            q, k, v = inputs(device, 33, dtype=dtype)
            output = FlashAttentionV3()(q, k, v)
            assert output.dtype == dtype
            assert_close(output, by_mask(q, k, v))


class TestFlashAttentionV3CUDA:
    @needs_cuda((8, 0))
    def test_cuda_kernel_availability(self, device):
        module = FlashAttentionV3(causal=True)
        assert_attends(module, *inputs(device, 256, width=64, dtype=torch.float16))
        fused = ("sdpa[is_causal, flash]", "sdpa[is_causal, cudnn]")
        assert module.path_taken.startswith(fused)

    @needs_cuda((8, 0))
    @pytest.mark.parametrize("head_dim", [64, 128])
    def test_cuda_correctness_optimized_dims(self, device, head_dim):
        q, k, v = inputs(device, 512, heads=8, width=head_dim, dtype=torch.float16)
        output, taken = attend(q, k, v, path="sdpa_flash")
        assert taken.backend == "flash"
        assert_close(output, by_mask(q, k, v))

    @needs_cuda((8, 0))
    @pytest.mark.parametrize("seq_len", [128, 512, 1024, 2048])
    def test_cuda_long_sequences(self, device, seq_len):
        qkv = inputs(device, seq_len, width=64, dtype=torch.float16)
        assert_attends(FlashAttentionV3(causal=True), *qkv)

    @needs_cuda((8, 0))
    def test_cuda_causal_masking(self, device):
        q, k, v = inputs(device, 300, width=64, dtype=torch.float16)
        for path in ("sdpa_flash", "sdpa_efficient", "sdpa_math"):
            before = attend(q, k, v, pattern=att.Causal(), path=path)[0]
            changed = v.clone()
            changed[:, :, -1] += 10
            after = attend(q, k, changed, pattern=att.Causal(), path=path)[0]
            assert torch.equal(before[:, :, :-1], after[:, :, :-1])
            assert (before - after)[:, :, -1].abs().max() > 0.01

    @needs_cuda((8, 0))
    def test_cuda_bfloat16_support(self, device):
        q, k, v = inputs(device, 200, width=128, dtype=torch.bfloat16)
        output, taken = attend(q, k, v, pattern=att.Causal(), path="sdpa_flash")
        assert (output.dtype, taken.backend) == (torch.bfloat16, "flash")
        assert_close(output, by_mask(q, k, v, lower_triangle(200, 200)))


class TestFlashAttentionV3EdgeCases:
    def test_invalid_input_dimensions(self):
        flat = torch.randn(2, 8, 64)
        with pytest.raises(ValueError, match=r"\[batch, heads, positions, width\].*\(2, 8, 64\)"):
            FlashAttentionV3()(flat, flat, flat)

    def test_mismatched_shapes(self):
        q, k, v = inputs(torch.device("cpu"), 8)
        with pytest.raises(ValueError, match=r"do not fit each other: .*v \(2, 4, 7, 16\)"):
            FlashAttentionV3()(q, k, v[:, :, 1:])
        with pytest.raises(ValueError, match="multiple of key heads"):
            FlashAttentionV3()(q, k[:, :3], v[:, :3])
        with pytest.raises(ValueError, match=r"float32 on cpu, torch.float64"):
            FlashAttentionV3()(q, k.double(), v.double())

    def test_batch_size_one(self, device):
        assert_attends(FlashAttentionV3(causal=True), *inputs(device, 50, batch=1))

    def test_single_head(self, device):
        assert_attends(FlashAttentionV3(causal=True), *inputs(device, 50, heads=1))

    def test_very_small_sequence(self, device):
        for length in (1, 2, 3):
            assert_attends(FlashAttentionV3(), *inputs(device, length))
        one = inputs(device, 1)
        assert torch.equal(FlashAttentionV3(causal=True)(*one), one[2])


class TestFlashAttentionV3Performance:
    def test_performance_vs_pytorch(self, device):
        """The module launches the same kernels as torch in the same order, so is not slower."""
        q, k, v = inputs(device, 512, width=64)
        module = FlashAttentionV3(causal=True)
        with Operators() as ours:
            output = module(q, k, v)
        with Operators() as theirs:
            expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert torch.equal(output, expected)
        # _fused_sdp_choice asks for SDPA's kernel, and launches none
        launched = [name for name in ours.seen if name != "_fused_sdp_choice"]
        assert launched == [name for name in theirs.seen if name != "_fused_sdp_choice"]
        assert any("attention" in name for name in launched)

    def test_memory_efficiency(self, device):
        """The backward pass saves 4 tensors of the input's size, and never the scores."""
        sizes = {}
        for path in ("auto", "explicit"):
            kept = []
            q, k, v = (x.requires_grad_() for x in inputs(device, 512, width=16))

            def note(tensor, kept=kept):
                kept.append(tensor.numel())
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                FlashAttentionV3(path=path)(q, k, v)
            sizes[path] = max(kept)
        scores = 2 * 4 * 512 * 512
        assert sizes["auto"] == q.numel() == 2 * 4 * 512 * 16
        assert sizes["explicit"] == scores
