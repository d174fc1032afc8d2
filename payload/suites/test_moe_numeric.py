"""MoE beyond the named suite: layouts, gradients, dispatch, masks, routers."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import functional_call

from suites import moe_reference as ref
from suites.moe_reference import assert_matches_reference, skip_without
from suites.numerics import double, relative_error
from torchbridge import moe
from torchbridge.moe import MoEConfig, MoELayer
from torchbridge.moe.banks import add_bias
from torchbridge.moe.experts import EXPERTS
from torchbridge.moe.grouped import grouped_mm

STILL = {"expert_dropout": 0.0, "router_dropout": 0.0}
THERE = hasattr(torch.nn.functional, "grouped_mm") or hasattr(torch, "_grouped_mm")
REFUSAL = "multiple of 16 bytes" if THERE else "has no grouped_mm"  # of odd widths


def tiny(device, dtype=torch.float64, hidden=6, expert_hidden=10, **settings) -> MoELayer:
    """Return a small layer without dropout."""
    config = MoEConfig(**{"num_experts": 4, **STILL, **settings})
    return MoELayer(config, hidden, expert_hidden).to(device, dtype)


class TestShapes:
    @pytest.mark.parametrize("expert_type", list(EXPERTS))
    def test_expert_types(self, device, expert_type):
        layer = MoELayer(MoEConfig(num_experts=5), 24, 48, expert_type=expert_type)
        assert_matches_reference(layer, torch.randn(3, 13, 24, device=device))

    @pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
    @pytest.mark.parametrize("use_bias", [True, False])
    def test_activations_and_bias(self, device, activation, use_bias):
        layer = tiny(device, torch.float32, activation=activation, use_bias=use_bias)
        assert_matches_reference(layer, torch.randn(50, 6, device=device))

    def test_leading_shapes_and_strides(self, device):
        layer = tiny(device).eval()
        x = torch.randn(5, 3, 2, 6, dtype=torch.float64, device=device)
        flat = layer(x.reshape(30, 6))
        assert torch.equal(layer(x), flat.reshape(5, 3, 2, 6))
        transposed = x.transpose(0, 2)
        assert torch.equal(layer(transposed), layer(transposed.contiguous()))
        assert layer(x[0, 0, 0]).shape == (6,)

    def test_no_tokens(self, device):
        layer = tiny(device, drop_tokens=True).eval()
        x = torch.empty(2, 0, 6, dtype=torch.float64, device=device)
        assert layer(x).shape == (2, 0, 6)
        assert layer.computed.sum().item() == 0


class TestDtypes:
    def test_routing_is_wide(self, device):
        router = moe.TopKRouter(64, MoEConfig()).to(device, torch.bfloat16).eval()
        x = torch.randn(200, 64, device=device, dtype=torch.bfloat16)
        logits = double(x) @ double(router.gate.weight).T
        routing = router(x)
        assert routing["probs"].dtype == torch.float32
        assert relative_error(routing["probs"], logits.softmax(dim=1)) <= 1e-6

    @pytest.mark.parametrize("name", ["topk", "switch", "learned"])
    def test_routing_is_wide_under_autocast(self, device, name):
        router = moe.create_router(name, 64).to(device).eval()
        x = torch.randn(200, 64, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            routing = router(x)
        assert torch.equal(routing["logits"], router(x)["logits"])


class TestGradients:
    @pytest.mark.parametrize("drop_tokens", [False, True])
    @pytest.mark.parametrize("kind", ["standard", "glam"])
    def test_gradcheck(self, device, drop_tokens, kind):
        settings = {"num_experts": 3, "drop_tokens": drop_tokens, "min_capacity": 0}
        config = MoEConfig(**settings, capacity_factor=0.7, activation="silu", **STILL)
        layer = moe.create_moe_layer(kind, 4, 5, config=config).to(device, torch.float64)
        names = [name for name, _ in layer.named_parameters()]
        x = torch.randn(7, 4, dtype=torch.float64, device=device, requires_grad=True)

        def output(x, *values):
            return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

        values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
        assert torch.autograd.gradcheck(output, (x, *values))

    @pytest.mark.parametrize("kind", ["switch", "gshard", "entropy"])
    def test_a_masked_expert_and_no_tokens_leave_every_number_finite(self, device, kind):
        layer = tiny(device, load_balance_loss_type=kind).eval()
        mask = torch.tensor([False, True, True, True], device=device)
        for tokens in (20, 0):
            x = torch.randn(tokens, 6, dtype=torch.float64, device=device)
            _, aux = layer(x, mask, return_router_logits=True)
            losses = aux["load_balance_loss"] + aux["router_z_loss"]
            (gradient,) = torch.autograd.grad(losses, layer.router.gate.weight)
            assert torch.isfinite(losses)
            assert torch.isfinite(gradient).all()
            assert bool(gradient.any()) == (tokens > 0)

    def test_entropy_of_the_experts_that_are_left(self, device):
        """The loss is ln E - H(mean): two of four experts with equal probability give ln 2."""
        probs = torch.tensor([[0.5, 0.5, 0.0, 0.0]] * 3, dtype=torch.float64, device=device)
        loss = moe.entropy_load_balance_loss(probs, probs.argsort(dim=1)[:, :2])
        assert loss.item() == pytest.approx(math.log(2), abs=1e-12)


class TestDispatch:
    @pytest.mark.parametrize("bad", [math.inf, math.nan])
    def test_an_unreal_bias_stays_with_its_expert(self, device, bad):
        layer = tiny(device, torch.float32, hidden=16, expert_hidden=32, dispatch="grouped_mm")
        layer.eval()
        skip_without(device, torch.float32, "grouped_mm")
        x = torch.randn(40, 16, device=device, requires_grad=True)
        with torch.no_grad():
            layer.experts.down_bias[1] = bad
        chosen = (layer.router(x.detach())["expert_indices"] == 1).any(dim=1)
        assert chosen.any()
        assert not chosen.all()
        output = layer(x)
        assert torch.equal(torch.isfinite(output).all(dim=1), ~chosen)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
    def test_the_gradient_of_a_bias_is_the_sum_over_its_rows(self, device, dtype):
        expert = torch.tensor([0, 0, 2, 2, 2, 3], device=device)  # the second has none
        segments = moe.Segments.from_experts(expert, 4)
        rows = torch.randn(6, 5, device=device).to(dtype).requires_grad_()
        bias = torch.randn(4, 5, device=device).to(dtype).requires_grad_()
        upstream = torch.randn(6, 5, device=device).to(dtype)
        upstream[5, 0] = math.inf
        output = add_bias(rows, bias, segments)
        assert torch.equal(output, rows + bias[expert])
        to_rows, to_bias = torch.autograd.grad(output, (rows, bias), upstream)
        assert torch.equal(to_rows, upstream)
        parts = [upstream[expert == e].double().sum(dim=0) for e in range(4)]
        tolerance = 1e-12 if dtype == torch.float64 else 2e-2
        assert torch.allclose(to_bias.double(), torch.stack(parts), rtol=tolerance, atol=tolerance)

    def test_grouped_takes_expanded_gradients(self, device):
        skip_without(device, torch.bfloat16, "grouped_mm")
        rows = torch.ones(6, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
        weights = torch.eye(16, device=device, dtype=torch.bfloat16).repeat(2, 1, 1)
        ends = torch.tensor([2, 6], dtype=torch.int32, device=device)
        grouped_mm(rows, weights, ends).sum().backward()  # the kernel itself refuses stride 0
        assert rows.grad.tolist() == [[1.0] * 16] * 6

    def test_grouped_is_taken_on_cuda(self, device):
        if device.type != "cuda":
            pytest.skip("needs a CUDA device")
        skip_without(device, torch.bfloat16, "grouped_mm")
        layer = tiny(device, torch.bfloat16, 64, 128)
        assert_matches_reference(layer, torch.randn(300, 64, device=device, dtype=torch.bfloat16))
        assert layer.path_taken == "grouped_mm"

    def test_grouped_is_refused_by_name(self, device):
        layer = tiny(device, torch.float32, 6, 10, dispatch="grouped_mm")
        with pytest.raises(RuntimeError, match=rf"{REFUSAL}.*use 'auto'"):
            layer(torch.randn(5, 6, device=device))
        odd = MoELayer(MoEConfig(dispatch="grouped_mm"), 8, expert_type="attention").to(device)
        with pytest.raises(RuntimeError, match="needs feedforward experts"):
            odd(torch.randn(5, 8, device=device))

    def test_fallback_is_named(self, device):
        bank = tiny("meta", torch.float32, 6, 10).experts
        path = bank.path(moe.Batch(torch.device("meta"), torch.bfloat16, 4096, 2), "auto")
        assert path.name == "segments"
        assert path.synchronises
        assert REFUSAL in str(path)


class TestMasks:
    def test_masked_experts_are_never_chosen(self, device):
        layer = tiny(device).eval()
        x = torch.randn(2, 15, 6, dtype=torch.float64, device=device)
        mask = torch.rand(2, 15, 4, device=device).argsort(dim=-1) < 2  # two experts each
        _, aux = layer(x, expert_mask=mask, return_router_logits=True)
        allowed = mask.reshape(-1, 4).sum(dim=0)
        assert torch.equal(layer.computed, allowed)  # only two experts are allowed
        assert torch.isfinite(aux["router_z_loss"])

    def test_a_mask_is_a_smaller_layer(self, device):
        whole, part = tiny(device).eval(), tiny(device, num_experts=2).eval()
        with torch.no_grad():
            for big, small in zip(whole.parameters(), part.parameters(), strict=True):
                small.copy_(big[1:3])
        x = torch.randn(30, 6, dtype=torch.float64, device=device)
        mask = torch.tensor([False, True, True, False], device=device)
        assert relative_error(whole(x, mask), part(x)) <= 1e-12

    @pytest.mark.parametrize("router", ["topk", "hash", "learned", "dynamic"])
    def test_too_few_experts_left(self, device, router):
        router = moe.create_router(router, 6, config=MoEConfig(num_experts=4)).to(device).eval()
        x = torch.randn(5, 6, device=device)
        with pytest.raises(ValueError, match="fewer than top_k=2"):  # the mask is on the CPU
            router(x, torch.tensor([True, False, False, False]))
        mask = torch.tensor([True, False, True, False], device=device)
        assert router(x, mask)["expert_indices"].sort().values.tolist() == [[0, 2]] * 5


class TestHashRouter:
    @pytest.mark.parametrize(("experts", "top_k", "salt"), [(3, 3, 0), (8, 2, 5), (64, 6, 1)])
    def test_against_python_integers(self, device, experts, top_k, salt):
        config = MoEConfig(num_experts=experts, top_k=top_k)
        router = moe.HashRouter(9, config, seed=salt)
        x = torch.randn(50, 9, device=device)
        got = router(x)["expert_indices"].tolist()
        for bits, row in zip(x.cpu().view(torch.int32).tolist(), got, strict=True):
            token = ref.hash_row_python(bits)
            assert row == ref.hash_experts_python(token, experts, top_k, salt)
        ids = torch.tensor([0, 1, 50256, -1], device=device)
        got = router(x[:4], token_ids=ids)["expert_indices"].tolist()
        for token, row in zip(ids.tolist(), got, strict=True):
            mixed = ref.mix_python(token & ref.MASK_64)
            assert row == ref.hash_experts_python(mixed, experts, top_k, salt)

    def test_is_a_function_of_the_token(self, device):
        router = moe.HashRouter(9, MoEConfig())
        x = torch.randn(300, 9, device=device)
        x[0] = 0.0
        x[1] = -0.0
        indices, order = router(x)["expert_indices"], torch.randperm(300, device=device)
        assert torch.equal(router(x[order])["expert_indices"], indices[order])
        assert torch.equal(indices[0], indices[1])
        moved = router(torch.nextafter(x[2:], x[2:] + 1))["expert_indices"]
        assert 0.7 < (moved != indices[2:]).float().mean().item() < 1  # 7/8 of them, by chance

    def test_weights(self, device):
        routing = moe.HashRouter(9, MoEConfig(top_k=4))(torch.randn(5, 9, device=device))
        assert routing["expert_weights"].tolist() == [[0.25] * 4] * 5
        assert routing["probs"].tolist() == [[0.125] * 8] * 5


class TestOtherRouters:
    def test_learned_router(self, device):
        router = moe.LearnedRouter(20, MoEConfig(), router_hidden_size=12).to(device).eval()
        x = torch.randn(30, 20, device=device)
        routing = router(x)
        weight, bias = double(router.features.weight), double(router.features.bias)
        features = (double(x) @ weight.T + bias).clamp(min=0)
        probs = (features @ double(router.gate.weight).T).softmax(dim=1)
        assert relative_error(routing["features"], features) <= 1e-5
        assert relative_error(routing["probs"], probs) <= 1e-5

    def test_balancing_router_adapts(self, device):
        router = moe.BalancingRouter(6, MoEConfig(num_experts=4), rate=0.5).to(device)
        router.adapt(torch.tensor([10, 4, 1, 1], device=device))  # the mean is 4
        assert router.selection_bias.tolist() == [-0.5, 0.0, 0.5, 0.5]
        routing = router.eval()(torch.zeros(1, 6, device=device))
        assert routing["expert_indices"].tolist() == [[2, 3]]
        assert routing["expert_weights"].tolist() == [[0.5, 0.5]]  # of the probabilities, unbiased
        mask = torch.tensor([True, True, True, False], device=device)  # the bias cannot undo it
        assert router(torch.zeros(1, 6, device=device), mask)["expert_indices"].tolist() == [[2, 1]]

    @pytest.mark.parametrize("name", list(moe.ROUTERS))
    def test_every_router_serves_a_layer(self, device, name):
        config = MoEConfig(num_experts=4, top_k=1 if name == "switch" else 2)
        layer = MoELayer(config, 20, 30, router=moe.create_router(name, 20, config=config))
        assert_matches_reference(layer, torch.randn(33, 20, device=device))


class TestState:
    def test_single_expert_is_a_copy(self, device):
        for gated in (False, True):
            bank = moe.FeedForwardBank(3, 6, 10, MoEConfig(activation="silu", **STILL), gated)
            bank = bank.to(device, torch.float64)
            x = torch.randn(8, 6, dtype=torch.float64, device=device)
            segments = moe.Segments.from_experts(torch.full((8,), 1, device=device), 3)
            rows = bank(x, segments, moe.Path("segments"))
            assert relative_error(bank.expert(1)(x), rows) <= 1e-12
