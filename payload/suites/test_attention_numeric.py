"""Each pattern on each path against the float64 reference; layers, and what they save."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._pytree import tree_leaves

from suites import attention_reference as ref
from suites.attention_reference import CASES, NOT_FOR_SDPA, Case, by_case, by_mask, inputs
from suites.covering import pairwise
from suites.numerics import assert_close, double
from suites.operators import Operators
from torchbridge import attention as att
from torchbridge.attention import attend, flex

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

DTYPES = [torch.float64, torch.bfloat16, torch.float16]
PATHS = ["explicit", "flex_eager", "sdpa", "sdpa_math"]
SHAPES = [  # queries, keys, heads, groups, width
    (1, 1, 4, 4, 16),
    (1, 37, 4, 4, 16),
    (37, 1, 4, 4, 16),
    (17, 53, 4, 1, 24),
    (53, 17, 4, 2, 40),
    (31, 31, 4, 4, 7),
    (2, 3, 4, 4, 128),
]


def runs_here(device: torch.device, path: str, dtype: torch.dtype = torch.float32) -> None:
    """Skip the test if torch has no kernel or no dtype for it on this device."""
    if path == "flex_eager" and att.why_not_on(device, compiled=False):
        pytest.skip(att.why_not_on(device, compiled=False))
    if dtype == torch.float64 and device.type in ("mps", "xla"):
        pytest.skip(f"{device.type} has no float64")


class TestPatterns:
    @pytest.mark.parametrize(
        ("name", "path", "dtype"), pairwise(CASES, ["auto", *PATHS], [torch.float32, *DTYPES])
    )
    def test_against_double(self, device, name, path, dtype):
        runs_here(device, path, dtype)
        q, k, v = inputs(device, dtype=dtype)
        case = CASES[name]
        if path.startswith("sdpa") and name in NOT_FOR_SDPA:
            with pytest.raises(att.PathRefused, match="SDPA only adds to scores"):
                attend(q, k, v, pattern=case.pattern, path=path)
            return
        output, taken = attend(q, k, v, pattern=case.pattern, path=path)
        assert path in ("auto", taken.name)
        assert output.dtype == dtype
        assert_close(output, by_case(q, k, v, case))

    @pytest.mark.parametrize(
        ("shape", "name"), pairwise(SHAPES, ["causal_sliding_window", "alibi", "soft_cap"])
    )
    def test_odd_shapes(self, device, name, shape):
        queries, keys, heads, groups, width = shape
        q, k, v = inputs(device, queries, keys, heads=heads, groups=groups, width=width)
        for path in ("auto", "explicit"):
            output, _ = attend(q, k, v, pattern=CASES[name].pattern, path=path)
            assert_close(output, by_case(q, k, v, CASES[name]))

    @pytest.mark.parametrize("name", ["causal", "alibi", "document_masking", "prefix_lm"])
    @pytest.mark.parametrize("path", ["auto", "explicit", "flex_eager"])
    def test_queries_behind_a_cache(self, device, name, path):
        runs_here(device, path)
        q, k, v = inputs(device, 6, 23)
        output, _ = attend(q, k, v, pattern=CASES[name].pattern, q_offset=17, path=path)
        assert_close(output, by_case(q, k, v, CASES[name], offset=17))

    @pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 12, 16])
    def test_alibi_slopes(self, device, heads):
        slopes = att.alibi_slopes(heads)
        assert len(set(slopes)) == heads
        power = 2 ** int(math.log2(heads))
        for i in range(power):
            assert slopes[i] == 2.0 ** (-8 * (i + 1) / power)
        assert slopes[power:] == att.alibi_slopes(2 * power)[0::2][: heads - power]
        q, k, v = inputs(device, 9, heads=heads)
        case = Case(att.ALiBi(heads), change=lambda s, b, h, q, k: s - slopes[h] * abs(q - k))
        assert_close(attend(q, k, v, pattern=case.pattern)[0], by_case(q, k, v, case))

    def test_alibi_slopes_are_on_the_device(self):
        scores = torch.zeros(1, 8, 5, 5, device="meta")  # mixed with CPU tensors it would raise
        assert att.sdpa.modified(att.ALiBi(8), scores).device.type == "meta"
        q = torch.zeros(1, 8, 5, 16, device="meta")
        assert attend(q, q, q, pattern=att.ALiBi(8), path="explicit")[0].device.type == "meta"


class TestMasks:
    @pytest.mark.parametrize("path", ["sdpa", "explicit"])
    @pytest.mark.parametrize("shape", [(2, 1, 1, 23), (23, 23), (1, 4, 1, 23), (2, 4, 23, 23)])
    def test_bool_masks_broadcast(self, device, shape, path):
        q, k, v = inputs(device)
        mask = torch.rand(shape, device=device) > 0.4
        output, _ = attend(q, k, v, mask=mask, path=path)
        assert_close(output, by_mask(q, k, v, mask))

    @pytest.mark.parametrize("path", ["sdpa", "sdpa_math", "explicit"])
    def test_a_bias_is_added(self, device, path):
        q, k, v = inputs(device)
        bias = torch.randn(4, 23, 23, device=device)
        bias[:, :, 20:] = -math.inf
        scores = ref.scaled_scores(q, k) + double(bias)
        output, _ = attend(q, k, v, mask=bias, path=path)
        assert_close(output, ref.weigh(scores, v))

    @pytest.mark.parametrize("name", ["causal", "sliding_window", "alibi", "soft_cap", "custom"])
    @pytest.mark.parametrize("kind", ["bool", "bias"])
    def test_mask_and_pattern_both_hold(self, device, name, kind):
        q, k, v = inputs(device)
        seen = torch.rand(2, 1, 1, 23, device=device) > 0.3
        mask = seen if kind == "bool" else torch.zeros_like(seen, dtype=torch.float32)
        if kind == "bias":
            mask = mask.masked_fill(~seen, -math.inf)
        output, taken = attend(q, k, v, pattern=CASES[name].pattern, mask=mask)
        assert_close(output, by_case(q, k, v, CASES[name], mask=seen))
        assert taken.form != "is_causal"  # is_causal cannot be combined with a mask
        assert (taken.form == "scores") == (name in NOT_FOR_SDPA)

    @pytest.mark.parametrize("path", ["sdpa", "sdpa_math", "explicit"])
    @pytest.mark.parametrize("kind", ["bool", "bias"])
    def test_rows_that_see_nothing_are_zero(self, device, kind, path):
        q, k, v = inputs(device)
        seen = torch.rand(2, 1, 23, 23, device=device) > 0.5
        seen[0, :, 3] = seen[1, :, 20:] = False
        mask = seen
        if kind == "bias":
            mask = torch.zeros(seen.shape, device=device).masked_fill(~seen, -math.inf)
        output, _ = attend(q, k, v, mask=mask, path=path)
        assert_close(output, by_mask(q, k, v, seen))
        assert output[0, :, 3].abs().max() == 0
        assert output[1, :, 20:].abs().max() == 0

    @pytest.mark.parametrize("path", ["auto", "explicit", "flex_eager"])
    def test_patterns_that_hide_whole_rows(self, device, path):
        runs_here(device, path)
        q, k, v = inputs(device, 23, 8)
        output, _ = attend(q, k, v, pattern=att.CausalSlidingWindow(4), path=path)
        assert output[:, :, 11:].abs().max() == 0  # their windows begin after the last key
        assert output[:, :, :11].abs().amax(dim=-1).min() > 0
        assert_close(output, by_case(q, k, v, CASES["causal_sliding_window"]))

    @pytest.mark.parametrize("path", ["sdpa", "sdpa_math", "explicit"])
    def test_empty_rows_have_no_gradient(self, device, path):
        q, k, v = (x.requires_grad_() for x in inputs(device, 6))
        seen = torch.ones(6, 6, dtype=torch.bool, device=device)
        seen[2] = False
        attend(q, k, v, mask=seen, path=path)[0].sum().backward()
        assert q.grad[:, :, 2].abs().max() == 0
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
        assert_close(v.grad.sum(dim=2), torch.full((2, 4, 16), 5.0))  # five rows of weights


class TestLayouts:
    @pytest.mark.parametrize("path", ["auto", "explicit", "flex_eager"])
    def test_strides_do_not_matter(self, device, path):
        runs_here(device, path)
        q, k, v = (x.transpose(1, 2) for x in inputs(device, 4, heads=23))  # [B, 4, 23, D] views
        case = CASES["causal"]
        output, _ = attend(q, k, v, pattern=case.pattern, path=path)
        assert_close(output, by_case(q, k, v, case))
        sliced = (x[..., ::2] for x in (q, k, v))
        output, _ = attend(*sliced, pattern=case.pattern, path=path)
        assert_close(output, by_case(q[..., ::2], k[..., ::2], v[..., ::2], case))

    @pytest.mark.parametrize(
        ("path", "groups", "name"),
        pairwise(
            ["auto", "explicit", "flex_eager", "sdpa_math"], [1, 2], ["full", "causal", "alibi"]
        ),
    )
    def test_shared_heads_of_keys_and_a_scale(self, device, name, groups, path):
        runs_here(device, path)
        q, k, v = inputs(device, groups=groups)
        output, _ = attend(q, k, v, pattern=CASES[name].pattern, scale=0.7, path=path)
        assert_close(output, by_case(q, k, v, CASES[name], scale=0.7))

    def test_values_of_another_width(self, device):
        q, k, _ = inputs(device)
        v = torch.randn(2, 4, 23, 5, device=device)
        for path in ("auto", "explicit"):
            output, _ = attend(q, k, v, pattern=att.Causal(), path=path)
            assert_close(output, by_case(q, k, v, CASES["causal"]))


class TestDropout:
    @pytest.mark.parametrize("path", ["sdpa", "explicit"])
    def test_statistics(self, device, path):
        q = torch.zeros(4, 8, 64, 64, device=device)  # every weight is 1/64
        v = torch.eye(64, device=device).expand(4, 8, 64, 64)  # so the output is the weights
        weights = attend(q, q, v, dropout=0.25, path=path)[0]
        kept = weights[weights != 0]
        assert_close(kept, torch.full_like(kept, 1 / 64 / 0.75))
        share = kept.numel() / weights.numel()
        assert abs(share - 0.75) < 5 * (0.75 * 0.25 / weights.numel()) ** 0.5  # five sigma
        other = attend(q, q, v, dropout=0.25, path=path)[0]
        assert not torch.equal(other, weights)


class TestLayersAndTheirCache:
    def test_layer_against_double(self, device):
        layer = att.MultiHeadAttention(32, 4, num_kv_heads=2, pattern=att.Causal()).to(device)
        x = torch.randn(2, 11, 32, device=device)
        assert_close(layer(x), ref.layer_by_case(layer, x, CASES["causal"]))

    @pytest.mark.parametrize("chunks", [(1,) * 12, (5, 1, 6), (11, 1)])
    @pytest.mark.parametrize("name", ["causal", "causal_sliding_window", "alibi+causal"])
    def test_cached_steps_equal_one_pass(self, device, name, chunks):
        layer = att.MultiHeadAttention(32, 4, pattern=CASES[name].pattern).to(device).eval()
        x = torch.randn(2, 12, 32, device=device)
        past, outputs = None, []
        for part in x.split(chunks, dim=1):
            output, past = layer(part, past=past, use_cache=True)
            outputs.append(output)
            plain = name == "causal" and part.shape[1] == 1
            assert not plain or layer.path_taken.startswith("sdpa[no mask")
        assert past[0].shape == past[1].shape == (2, 4, 12, 8)
        assert_close(torch.cat(outputs, dim=1), layer(x))

    def test_weights_or_cache(self):
        layer = att.MultiHeadAttention(32, 4)
        with pytest.raises(ValueError, match="not for both"):
            layer(torch.randn(2, 9, 32), return_weights=True, use_cache=True)
        named = att.FlashAttention3(32, 4, path="sdpa")
        with pytest.raises(att.PathRefused, match="no weights to return"):
            named(torch.randn(2, 9, 32), return_weights=True)
        for wrong in ((33, 4, None), (32, 4, 3)):
            with pytest.raises(ValueError, match="is not divisible by"):
                att.MultiHeadAttention(*wrong[:2], num_kv_heads=wrong[2])

    def test_weights_are_those_of_the_output(self, device):
        layer = att.FlashAttention3(32, 4, causal=True).to(device).eval()
        x = torch.randn(2, 9, 32, device=device)
        output, weights = layer(x, return_weights=True)
        assert layer.path_taken == "explicit[scores]"
        assert weights.shape == (2, 4, 9, 9)
        assert weights.triu(1).abs().max() == 0
        assert_close(weights.sum(dim=-1), torch.ones(2, 4, 9))
        assert_close(output, layer(x))
        named = att.FlashAttention3(32, 4, path="sdpa")
        with pytest.raises(att.PathRefused, match="no weights to return"):
            named(x.cpu(), return_weights=True)


def bytes_made(function, args, made) -> int:
    """Return the bytes of the largest storage among an operator's outputs."""
    tensors = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
    return max((one.untyped_storage().nbytes() for one in tensors), default=0)


class TestBlockMasks:
    def test_keyed_by_all_that_matters(self, device):
        masks = flex.BlockMasks(32)
        ids = torch.zeros(2, 300, dtype=torch.int64, device=device)
        calls = [
            (att.SlidingWindow(4), (2, 4, 300, 300)),
            (att.SlidingWindow(5), (2, 4, 300, 300)),
            (att.CausalSlidingWindow(4), (2, 4, 300, 300)),
            (att.SlidingWindow(4), (2, 4, 299, 300)),
            (att.SlidingWindow(4), (2, 4, 300, 299)),
            (att.patterns.Shifted(att.SlidingWindow(4), 7), (2, 4, 300, 300)),
            (att.DocumentMasking(ids), (2, 4, 300, 300)),
            (att.DocumentMasking(ids), (2, 4, 300, 300)),  # not cached: its ids may have changed
            (att.Custom(mask=ref.thirds), (2, 4, 300, 300)),
            (att.Custom(mask=ref.thirds), (2, 3, 300, 300)),
            (att.Custom(mask=ref.thirds), (1, 3, 300, 300)),
        ]
        made = [masks.lookup(pattern, shape, device) for pattern, shape in calls]
        assert (masks.hits, masks.misses, len(masks)) == (0, len(calls), len(calls))
        again = [masks.lookup(pattern, shape, device) for pattern, shape in calls]
        assert all(one is two for one, two in zip(made, again, strict=True))
        assert (masks.hits, masks.misses) == (len(calls), len(calls))
        equal = masks.lookup(att.SlidingWindow(4), (9, 8, 300, 300), device)
        assert equal is made[0]  # the mask depends on neither sample nor head

    def test_a_changed_document_is_seen(self, device):
        q, k, v = inputs(device, 54)
        ids = torch.tensor(ref.IDS)
        for _ in range(2):
            pattern = att.DocumentMasking(ids)
            expected = ref.by_mask(q, k, v, (ids[:, :, None] == ids[:, None])[:, None])
            assert_close(attend(q, k, v, pattern=pattern, path="flex_eager")[0], expected)
            ids[:, 10:30] = 9

    @torch.inference_mode()
    def test_made_for_inference_but_fit_to_train(self, device):
        pattern = att.DocumentMasking(torch.zeros(2, 300, dtype=torch.int64, device=device))
        assert not pattern.ids.is_inference()
        for one in (pattern, att.SlidingWindow(4)):
            mask = flex.BlockMasks(32).lookup(one, (2, 4, 300, 300), device)
            assert not mask.kv_indices.is_inference()

    @pytest.mark.parametrize(
        ("pattern", "shape"),
        [
            (att.Causal(), (1, 1, 300, 300)),
            (att.CausalSlidingWindow(200), (1, 1, 640, 640)),
            (att.patterns.Shifted(att.PrefixLM(130), 70), (1, 1, 129, 500)),
            (att.DocumentMasking(torch.arange(600).view(2, 300) // 140), (2, 1, 300, 300)),
            (att.Custom(mask=lambda b, h, q, k: q >= k + 100 * b - 50 * h), (2, 3, 257, 400)),
        ],
        ids=lambda one: getattr(one, "name", str(one)),
    )
    def test_the_blocks_are_torchs(self, monkeypatch, device, pattern, shape):
        """The blocks equal those of torch's own function, which evaluates all scores at once."""
        monkeypatch.setattr(flex, "AT_ONCE", 3 * 128 * 128)
        wanted = flex.torch_flex.create_block_mask(
            pattern.mask_mod(device), *shape, device=device.type
        )
        made = flex.block_mask(pattern, shape, device)
        for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
            assert torch.equal(getattr(made, name), getattr(wanted, name)), name
        assert torch.equal(made.to_dense(), wanted.to_dense())
        assert made.seq_lengths == wanted.seq_lengths == shape[2:]

    def test_memory_does_not_grow_with_the_scores(self, device):
        """8,192 positions have 64 Mi scores; torch's own function uses ten bytes for each score."""
        ids = torch.arange(8192, device=device).view(1, -1) // 1000
        for pattern in (att.CausalSlidingWindow(128), att.DocumentMasking(ids)):
            with Operators(bytes_made) as made:
                flex.block_mask(pattern, (1, 1, 8192, 8192), device)
            assert max(made.seen) <= 8 * flex.AT_ONCE < 8192**2
