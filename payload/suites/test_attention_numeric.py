"""Every pattern on every path against one score at a time in float64: shapes, dtypes, masks."""

from __future__ import annotations

import math

import pytest
import torch

from suites import attention_reference as ref
from suites.attention_reference import CASES, NOT_FOR_SDPA, Case, by_case, by_mask, inputs
from suites.covering import pairwise
from suites.numerics import assert_close, double
from torchbridge import attention as att
from torchbridge.attention import attend

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
    """Skip what torch has no kernel for on this device."""
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
        scores = torch.zeros(1, 8, 5, 5, device="meta")  # mixing it with the CPU's would raise
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
        assert taken.form != "is_causal"  # which would have no room for the mask
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
        assert output[:, :, 11:].abs().max() == 0  # they see keys 8 and later: there are none
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
    def test_shared_heads_of_keys(self, device, name, groups, path):
        runs_here(device, path)
        q, k, v = inputs(device, groups=groups)
        output, _ = attend(q, k, v, pattern=CASES[name].pattern, path=path)
        assert_close(output, by_case(q, k, v, CASES[name]))

    @pytest.mark.parametrize("path", ["auto", "explicit", "flex_eager", "sdpa_math"])
    def test_the_scale_that_was_given(self, device, path):
        runs_here(device, path)
        q, k, v = inputs(device)
        output, _ = attend(q, k, v, pattern=att.Causal(), scale=0.7, path=path)
        assert_close(output, by_case(q, k, v, CASES["causal"], scale=0.7))

    def test_values_of_another_width(self, device):
        q, k, _ = inputs(device)
        v = torch.randn(2, 4, 23, 5, device=device)
        for path in ("auto", "explicit"):
            output, _ = attend(q, k, v, pattern=att.Causal(), path=path)
            assert_close(output, by_case(q, k, v, CASES["causal"]))
