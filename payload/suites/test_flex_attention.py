"""The 35 named tests of FlexAttention. Their reference is attention_reference.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from suites.attention_reference import (
    CASES,
    Case,
    by_case,
    by_mask,
    inputs,
    layer_by_case,
    lower_triangle,
)
from suites.numerics import assert_close, relative_error
from torchbridge import attention as att
from torchbridge.attention import flex
from torchbridge.attention.sdpa import modified, visible

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

EMBED, HEADS, BATCH, LENGTH = 64, 4, 2, 24


@pytest.fixture
def x(device) -> torch.Tensor:
    """Return normally distributed numbers [2, 24, 64]."""
    return torch.randn(BATCH, LENGTH, EMBED, device=device)


def assert_layer(layer: att.MultiHeadAttention, x: torch.Tensor, case: Case) -> None:
    """Check that the layer's output equals the reference's, in eval mode without gradients."""
    layer = layer.to(x.device).eval()
    with torch.no_grad():
        assert_close(layer(x), layer_by_case(layer, x, case))


class TestFlexAttentionAvailability:
    def test_availability_check(self, device):
        reason = att.why_not_on(device)
        q, k, v = inputs(device)
        if reason is not None:
            with pytest.raises(att.PathRefused, match=reason.split(":")[0]):
                att.attend(q, k, v, path="flex")
            pytest.skip(reason)
        assert flex.torch_flex.flex_attention.__name__ == "flex_attention"
        with torch.no_grad():
            output, _ = att.attend(q, k, v, pattern=att.Causal(), path="flex_eager")
        assert_close(output, by_case(q, k, v, CASES["causal"]))

    def test_info_dict(self, device):
        info = att.get_flex_info(device)
        assert set(info) == {"available", "reason", "device", "patterns", "block_masks"}
        assert info["available"] == (info["reason"] is None) == (att.why_not_on(device) is None)
        assert info["device"] == str(device)
        assert info["patterns"] == ["full", *list(CASES)[1:9]]
        assert info["block_masks"] == len(flex.block_masks)


class TestFlexAttentionCreation:
    def test_basic_creation(self):
        layer = att.FlexAttentionLayer(EMBED, HEADS)
        assert (layer.embed_dim, layer.num_heads, layer.head_dim) == (64, 4, 16)
        assert layer.pattern == att.FULL
        assert sum(p.numel() for p in layer.parameters()) == 4 * 64 * 64 + 4 * 64
        with pytest.raises(ValueError, match="64 is not divisible by num_heads 5"):
            att.FlexAttentionLayer(EMBED, 5)

    def test_causal_creation(self, x):
        layer = att.FlexAttentionCausal(EMBED, HEADS)
        assert layer.pattern == att.Causal()
        assert_layer(layer, x, CASES["causal"])

    def test_sliding_window_creation(self, x):
        layer = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4)
        assert layer.pattern == att.SlidingWindow(4)
        assert_layer(layer, x, CASES["sliding_window"])
        back = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4, causal=True)
        assert_layer(back, x, CASES["causal_sliding_window"])

    def test_factory_function(self, x):
        made = att.create_flex_attention("sliding_window", EMBED, HEADS, window=4, bias=False)
        assert type(made) is att.FlexAttentionLayer
        assert made.pattern == att.SlidingWindow(4)
        assert made.qkv.bias is made.out.bias is None
        assert_layer(att.create_flex_attention("prefix_lm", EMBED, HEADS, prefix=5), x, PREFIX)
        with pytest.raises(TypeError, match="window"):
            att.create_flex_attention("causal", EMBED, HEADS, window=4)

    def test_factory_with_custom_score_mod(self, x):
        layer = att.create_flex_attention("custom", EMBED, HEADS, score=lambda s, b, h, q, k: 3 * s)
        assert_layer(layer, x, Case(layer.pattern, change=lambda s, b, h, q, k: 3 * s))


PREFIX = CASES["prefix_lm"]


class TestFlexAttentionForward:
    def test_basic_forward(self, x):
        layer = att.FlexAttentionLayer(EMBED, HEADS)
        assert_layer(layer, x, CASES["full"])
        assert layer(x).shape == x.shape

    def test_causal_forward(self, x):
        layer = att.FlexAttentionCausal(EMBED, HEADS)
        assert_layer(layer, x, CASES["causal"])
        changed = x.clone()
        changed[:, -1] += 1
        assert torch.equal(layer(x)[:, :-1], layer(changed)[:, :-1])

    def test_sliding_window_forward(self, x):
        layer = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4).to(x.device).eval()
        changed = x.clone()
        changed[:, 10] += 1
        moved = (layer(x) - layer(changed)).abs().amax(dim=(0, 2)) > 0
        assert moved.nonzero().flatten().tolist() == list(range(7, 14))  # 3 on either side of 10

    def test_gradient_flow(self, x):
        layer = att.FlexAttentionCausal(EMBED, HEADS).to(x.device)
        x.requires_grad_()
        layer(x)[:, 5].square().sum().backward()
        assert x.grad[:, 6:].abs().max() == 0  # later positions do not affect position 5
        assert x.grad[:, :6].abs().amax(dim=(0, 2)).min() > 1e-4
        assert all(p.grad.abs().max() > 0 for p in layer.parameters())
        assert x.device.type != "cpu" or layer.path_taken.startswith("sdpa")

    def test_eval_mode(self, x):
        layer = att.FlexAttentionLayer(EMBED, HEADS, dropout=0.5).to(x.device)
        assert relative_error(layer(x), layer(x)) > 0.01
        assert_layer(layer, x, CASES["full"])
        assert torch.equal(layer(x), layer(x))

    def test_various_seq_lengths(self, device):
        layer = att.FlexAttentionCausal(EMBED, HEADS)
        for length in (1, 2, 7, 16, 33, 54):
            assert_layer(layer, torch.randn(1, length, EMBED, device=device), CASES["causal"])


def scores_of(pattern: att.Pattern, device: torch.device) -> torch.Tensor:
    """Return scores [1, 4, 6, 6] of 1.5 each, after the pattern has modified them."""
    return modified(pattern, torch.full((1, 4, 6, 6), 1.5, device=device)).cpu()


def seen_of(pattern: att.Pattern, device: torch.device, size: int = 6) -> list[list[int]]:
    """Return the keys that each query sees, as rows of ones and zeros."""
    return visible(pattern, (1, 1, size, size), device)[0, 0].int().tolist()


class TestFlexAttentionScoreMods:
    def test_causal_score_mod(self, device):
        assert seen_of(att.Causal(), device, 4) == [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 1, 1],
        ]

    def test_sliding_window_score_mod(self, device):
        assert seen_of(att.SlidingWindow(2), device, 4) == [
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 0, 1, 1],
        ]

    def test_causal_sliding_window_score_mod(self, device):
        assert seen_of(att.CausalSlidingWindow(2), device, 4) == [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1],
        ]

    def test_alibi_score_mod(self, device):
        scores = scores_of(att.ALiBi(4), device)
        for head, slope in enumerate((0.25, 0.0625, 0.015625, 0.00390625)):
            assert scores[0, head, 4].tolist() == [1.5 - slope * d for d in (4, 3, 2, 1, 0, 1)]

    def test_soft_cap_score_mod(self, device):
        scores = scores_of(att.SoftCap(2.0), device)
        assert_close(scores, torch.full_like(scores, 2 * math.tanh(0.75)))
        huge = modified(att.SoftCap(2.0), torch.tensor([[[[1e6, -1e6]]]], device=device))
        assert huge.flatten().tolist() == [2.0, -2.0]


class TestFlexAttentionMaskGenerators:
    def test_causal_mask_generation(self, device):
        mask = flex.block_masks.lookup(att.Causal(), (1, 1, 512, 512), device)
        dense = mask.to_dense()[0, 0].cpu()  # of blocks of 128
        assert torch.equal(dense.bool(), lower_triangle(4, 4))
        assert mask.sparsity() == 100 * 6 / 16

    def test_sliding_window_mask_generation(self, device):
        mask = flex.block_masks.lookup(att.SlidingWindow(2), (1, 1, 512, 512), device)
        band = lower_triangle(4, 4).T.tril(1)
        assert torch.equal(mask.to_dense()[0, 0].cpu().bool(), band | band.T)
        assert mask.sparsity() == 100 * 6 / 16

    def test_full_mask_generation(self, device):
        assert visible(att.FULL, (1, 1, 512, 512), device) is None  # no mask is created
        assert flex.block_masks.lookup(att.FULL, (1, 1, 512, 512), device) is None


class TestFlexAttentionRegistry:
    def test_registered_in_registry(self):
        assert att.REGISTRY["flex"] is att.FlexAttentionLayer
        assert att.REGISTRY["flex_causal"] is att.FlexAttentionCausal
        assert att.REGISTRY["flex_sliding_window"] is att.FlexAttentionSlidingWindow
        assert att.REGISTRY["flex_alibi"] is att.FlexAttentionALiBi
        assert all(issubclass(kind, nn.Module) for kind in att.REGISTRY.values())

    def test_create_via_registry(self, x):
        layer = att.create_attention("flex_alibi", EMBED, HEADS)
        assert type(layer) is att.FlexAttentionALiBi
        assert_layer(layer, x, CASES["alibi+causal"])
        assert_layer(att.create_attention("flex_causal", EMBED, HEADS), x, CASES["causal"])
        with pytest.raises(ValueError, match=r"must be one of multi_head, .*'ring'"):
            att.create_attention("ring", EMBED, HEADS)


class TestFlexAttentionStats:
    def test_get_stats(self, x):
        layer = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4, path="explicit")
        layer = layer.to(x.device)
        assert layer.get_stats()["path_taken"] is None
        for _ in range(3):
            layer(x)
        stats = layer.get_stats()
        assert stats.pop("block_masks") == len(flex.block_masks)
        assert stats == {
            "pattern": "sliding_window",
            "embed_dim": 64,
            "num_heads": 4,
            "head_dim": 16,
            "calls": 3,
            "path_taken": "explicit[scores]",
            "fallback": None,
        }


class TestFlexAttentionCaching:
    @torch.no_grad()
    def test_block_mask_caching(self, x, monkeypatch):
        layers = [
            att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4, path="flex_eager")
            for _ in range(2)
        ]
        monkeypatch.setattr(flex, "block_masks", flex.BlockMasks(32))
        for layer in layers:
            assert_layer(layer, x, CASES["sliding_window"])
        assert (flex.block_masks.misses, flex.block_masks.hits) == (1, 1)  # layers share the mask
        assert_layer(layers[0], x[:, :20], CASES["sliding_window"])  # another length: another mask
        assert (flex.block_masks.misses, flex.block_masks.hits) == (2, 1)

    @torch.no_grad()
    def test_clear_cache(self, x):
        layer = att.FlexAttentionCausal(EMBED, HEADS, path="flex_eager").to(x.device)
        before = layer(x)
        assert layer.get_stats()["block_masks"] >= 1
        layer.clear_cache()
        assert layer.get_stats()["block_masks"] == 0
        assert torch.equal(layer(x), before)
        assert layer.get_stats()["block_masks"] == 1


class TestFlexAttentionFallback:
    def test_fallback_forward(self):
        layer = att.FlexAttentionSlidingWindow(16, 2, window=8)
        x = torch.randn(1, 1024, 16)  # long enough for FlexAttention, which cannot train here
        output = layer(x)
        assert layer.path_taken == "sdpa[mask, flash] (FlexAttention has no CPU backward)"
        assert layer.fallback == "FlexAttention has no CPU backward"
        layer.path = "explicit"
        assert_close(output, layer(x))
        layer.path = "flex"
        with pytest.raises(att.PathRefused, match=r"'flex' cannot be used: .* no CPU backward"):
            layer(x)

    def test_standard_attention_matches_output(self, x):
        ours = att.FlexAttentionLayer(EMBED, HEADS).to(x.device).eval()
        theirs = nn.MultiheadAttention(EMBED, HEADS, batch_first=True).to(x.device).eval()
        with torch.no_grad():
            theirs.in_proj_weight.copy_(ours.qkv.weight)
            theirs.in_proj_bias.copy_(ours.qkv.bias)
            theirs.out_proj.load_state_dict(ours.out.state_dict())
            assert_close(ours(x), theirs(x, x, x)[0])


class TestFlexAttentionPatterns:
    @pytest.mark.parametrize("pattern", ["full", "causal", "sliding_window"])
    def test_pattern_creation(self, x, pattern):
        options = {"window": 4} if pattern == "sliding_window" else {}
        layer = att.create_flex_attention(pattern, EMBED, HEADS, **options)
        assert layer.pattern == CASES[pattern].pattern
        assert_layer(layer, x, CASES[pattern])
        for missing in ("ring", "local", "global", "differential", "dynamic_sparse", "sparse"):
            with pytest.raises(ValueError, match=f"'{missing}' has no implementation .* full, ca"):
                att.create_flex_attention(missing, EMBED, HEADS)


class Block(nn.Module):
    """A transformer block with norms before attention and perceptron."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList(nn.LayerNorm(EMBED) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(EMBED, 128), nn.GELU(), nn.Linear(128, EMBED))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output [B, S, d] for x [B, S, d]."""
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class TestFlexAttentionIntegration:
    def test_in_transformer_block(self, x):
        block = Block(att.FlexAttentionCausal(EMBED, HEADS)).to(x.device)
        assert_layer(block.attention, block.norms[0](x).detach(), CASES["causal"])
        optimizer = torch.optim.Adam(block.parameters(), lr=3e-3)
        block.train()
        target = x.roll(1, dims=1)  # what was one position before: attention has to fetch it
        losses = []
        for _ in range(30):
            loss = (block(x) - target)[:, 1:].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.6 * losses[0]

    def test_with_kv_cache(self, x):
        layer = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=4, causal=True)
        layer = layer.to(x.device).eval()
        past, steps = None, []
        for position in range(LENGTH):
            output, past = layer(x[:, position : position + 1], past=past, use_cache=True)
            steps.append(output)
        assert past[0].shape == (BATCH, HEADS, LENGTH, EMBED // HEADS)
        expected = layer_by_case(layer, x, CASES["causal_sliding_window"])
        assert_close(torch.cat(steps, dim=1), expected)


class TestFlexAttentionBenchmark:
    def test_compile_compatibility(self, x):
        layer = att.FlexAttentionALiBi(EMBED, HEADS).to(x.device).eval()
        graphs = []

        def count(graph, _):
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(layer, backend=count, fullgraph=True)
        with torch.no_grad():
            for _ in range(3):
                assert_close(compiled(x), layer(x))
        assert len(graphs) == 1

    def test_memory_efficiency(self, device):
        q, k, v = inputs(device, 2048, batch=1, heads=1)
        mask = flex.block_masks.lookup(att.CausalSlidingWindow(128), (1, 1, 2048, 2048), device)
        held = sum(t.numel() * t.element_size() for t in mask.as_tuple() if torch.is_tensor(t))
        assert held * 100 < 2048 * 2048  # bytes of a dense bool mask
        computed = round((1 - mask.sparsity() / 100) * 256)
        assert computed == 31  # the diagonal and the one below it, of 16 x 16 blocks
        band = lower_triangle(2048, 2048) & ~lower_triangle(2048, 2048).tril(-128)
        output, _ = att.attend(q, k, v, pattern=att.CausalSlidingWindow(128), path="sdpa")
        assert_close(output, by_mask(q, k, v, band))
