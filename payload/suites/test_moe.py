"""The 48 named tests of the MoE library. Their reference is moe_reference.py, loops in float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites import expert_formulas
from suites import moe_reference as ref
from suites.moe_reference import assert_matches_reference, parameters, train_classifier
from suites.numerics import assert_close, double, relative_error
from torchbridge import moe
from torchbridge.moe import MoEConfig, MoELayer

HIDDEN, TOKENS = 256, 128  # the fixture x is [4, 32, 256]
EXPERT_PARAMETERS = 2 * HIDDEN * 4 * HIDDEN + 4 * HIDDEN + HIDDEN  # 525,568


class TestMoEConfig:
    def test_config_creation(self):
        config = MoEConfig()
        assert (config.num_experts, config.top_k, config.min_capacity) == (8, 2, 4)
        assert (config.capacity_factor, config.drop_tokens) == (1.25, False)
        assert (config.expert_dropout, config.router_dropout) == (0.1, 0.1)
        assert (config.load_balance_loss_weight, config.router_z_loss_weight) == (0.01, 0.001)
        assert (config.expert_parallelism, config.use_bias) == (False, True)
        assert (config.activation, config.normalize_router_probs) == ("relu", True)
        assert config.capacity(1000) == 313  # ceil(1.25 * 1000 * 2 / 8)

    def test_config_customization(self):
        config = MoEConfig(num_experts=16, top_k=4, capacity_factor=1.5, activation="gelu")
        assert (config.num_experts, config.top_k, config.activation) == (16, 4, "gelu")
        assert config.capacity(100) == 38  # ceil(1.5 * 100 * 4 / 16 = 37.5)
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.top_k = 1
        for bad in ({"top_k": 9}, {"num_experts": 0}, {"activation": "no"}, {"expert_dropout": 1}):
            with pytest.raises(ValueError, match=next(iter(bad))):
                MoEConfig(**bad)


class TestMoELayerCreation:
    def test_standard_moe_creation(self, config):
        layer = MoELayer(config, HIDDEN)
        assert len(layer.experts) == 8
        assert layer.experts.up.shape == (8, 4 * HIDDEN, HIDDEN)
        assert parameters(layer) == 8 * EXPERT_PARAMETERS + 8 * HIDDEN == 4_206_592

    def test_sparse_moe_creation(self, config):
        for level, active in ((0.25, 2), (0.5, 4), (0.01, 1), (1.0, 8)):
            layer = moe.SparseMoELayer(config, HIDDEN, 64, sparsity_level=level)
            assert layer.config.top_k == layer.router.config.top_k == active
        assert config == MoEConfig(num_experts=8, top_k=2)  # the caller's config is unchanged

    def test_switch_transformer_creation(self, config):
        layer = moe.SwitchTransformerMoE(config, HIDDEN)
        assert (layer.config.top_k, layer.config.normalize_router_probs) == (1, False)
        assert (type(layer.router), layer.router.jitter) == (moe.SwitchRouter, 0.01)
        assert (config.top_k, parameters(layer)) == (2, 4_206_592)

    def test_glam_style_creation(self, config):
        layer = moe.GLaMStyleMoE(dataclasses.replace(config, top_k=4), HIDDEN, 128)
        assert (layer.config.top_k, layer.config.activation) == (2, "gelu")
        assert layer.experts.up.shape == (8, 2 * 128, HIDDEN)  # gate and value
        assert layer.experts.down.shape == (8, HIDDEN, 128)

    def test_adaptive_moe_creation(self, config):
        layer = moe.AdaptiveMoELayer(config, HIDDEN, 128, adaptation_rate=0.05)
        assert layer.router.rate == 0.05
        assert torch.equal(layer.router.selection_bias, torch.zeros(8))
        assert "router.selection_bias" in layer.state_dict()  # the learned bias is saved

    def test_factory_function(self, config):
        kinds = {"standard": MoELayer, "sparse": moe.SparseMoELayer, "glam": moe.GLaMStyleMoE}
        kinds |= {"switch": moe.SwitchTransformerMoE, "adaptive": moe.AdaptiveMoELayer}
        assert set(kinds) == set(moe.LAYERS)
        for name, kind in kinds.items():
            layer = moe.create_moe_layer(name, 32, 64, config=config)
            assert (type(layer), layer.expert_hidden_size) == (kind, 64)
        with pytest.raises(ValueError, match="standard, sparse, switch, glam, adaptive"):
            moe.create_moe_layer("dense", 32)

    def test_create_moe_convenience(self):
        layer = moe.create_moe(HIDDEN, num_experts=4, top_k=1, capacity_factor=2.0)
        assert (layer.config.num_experts, layer.config.top_k) == (4, 1)
        assert layer.config.capacity_factor == 2.0
        assert parameters(layer) == 4 * EXPERT_PARAMETERS + 4 * HIDDEN


class TestMoEForwardPass:
    def test_standard_forward(self, config, x):
        assert_matches_reference(MoELayer(config, HIDDEN), x)

    def test_forward_with_aux_losses(self, config, x):
        layer = MoELayer(config, HIDDEN)
        aux = assert_matches_reference(layer, x)
        logits = double(aux["router_logits"])
        probs = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
        chosen = logits.topk(2, dim=1).indices.flatten().tolist()
        share = torch.tensor([chosen.count(e) / TOKENS for e in range(8)], dtype=torch.float64)
        balance = 0.01 * 8 * (share * probs.mean(dim=0)).sum()
        z_loss = 0.001 * (logits.exp().sum(dim=1).log() ** 2).mean()
        assert_close(aux["load_balance_loss"], balance)
        assert_close(aux["router_z_loss"], z_loss)
        assert_close(aux["expert_utilization"], share / 2)
        assert layer(x).shape == x.shape  # without aux when it is not asked for

    def test_sparse_forward(self, config, x):
        layer = moe.SparseMoELayer(config, HIDDEN, sparsity_level=0.5)
        assert_matches_reference(layer, x)
        assert layer.computed.sum().item() == TOKENS * 4  # half of 8 experts

    def test_switch_forward(self, config, x):
        layer = moe.SwitchTransformerMoE(config, HIDDEN)
        aux = assert_matches_reference(layer, x)
        best = aux["router_logits"].argmax(dim=1).flatten()
        assert torch.equal(layer.computed.cpu(), torch.bincount(best.cpu(), minlength=8))

    def test_glam_forward(self, config, x):
        assert_matches_reference(moe.GLaMStyleMoE(config, HIDDEN), x)

    def test_adaptive_forward(self, config, device):
        layer = moe.AdaptiveMoELayer(config, HIDDEN, 64, adaptation_rate=0.01).to(device)
        x = torch.randn(512, HIDDEN, device=device) + 0.5  # most tokens have the same experts
        assert_matches_reference(layer, x)
        before = layer.computed.max().item()
        layer.train()
        for _ in range(60):
            layer(x)
        layer.reset_expert_utilization()
        assert_matches_reference(layer, x)
        assert layer.computed.max().item() <= 1.35 * 128 < before  # 512 * 2 / 8 = 128 is even


class TestRouters:
    def test_topk_router(self, config, x):
        router = moe.TopKRouter(HIDDEN, config).to(x.device).eval()
        routing = router(x.flatten(0, 1))
        logits = double(x.flatten(0, 1)) @ double(router.gate.weight).T
        weights, indices = logits.softmax(dim=1).topk(2, dim=1)
        assert torch.equal(routing["expert_indices"].cpu(), indices)
        weights = weights / weights.sum(dim=1, keepdim=True)
        assert_close(routing["expert_weights"], weights)
        assert_close(routing["probs"], logits.softmax(dim=1))
        ties = router(torch.zeros(3, HIDDEN, device=x.device))["expert_indices"]
        assert ties.tolist() == [[0, 1]] * 3  # ties go to the lower index

    def test_switch_router(self, config, x):
        router = moe.SwitchRouter(HIDDEN, dataclasses.replace(config, router_dropout=0.0))
        router = router.to(x.device).eval()
        routing = router(x.flatten(0, 1))
        best = double(x.flatten(0, 1)) @ double(router.gate.weight).T
        expected = best.softmax(dim=1).max(dim=1, keepdim=True)
        assert torch.equal(routing["expert_indices"].cpu(), expected.indices)
        assert_close(routing["expert_weights"], expected.values)
        noisy = router.train()(x.flatten(0, 1))["logits"]
        assert 0 < relative_error(noisy, best) < 0.05  # features change by up to 1 %

    def test_hash_router(self, config, x):
        router = moe.HashRouter(HIDDEN, config)
        tokens = x.flatten(0, 1)
        indices = router(tokens)["expert_indices"].tolist()
        for bits, experts in zip(tokens.cpu().view(torch.int32).tolist(), indices, strict=True):
            assert experts == ref.hash_experts_python(ref.hash_row_python(bits), 8, 2)
        assert parameters(router) == 0
        many = router(torch.randn(8192, HIDDEN, device=x.device))["expert_indices"].flatten()
        counts = torch.bincount(many.cpu(), minlength=8).double()
        assert ((counts - 2048) ** 2 / 2048).sum() < 24.3  # chi-square, 7 degrees, p = 0.001

    def test_dynamic_capacity_router(self, config, x):
        router = moe.DynamicCapacityRouter(HIDDEN, config).to(x.device).eval()
        routing = router(x.flatten(0, 1))
        probs = double(routing["probs"])
        complexity = -(probs * probs.log()).sum(dim=1) / math.log(8)
        assert_close(routing["complexity"], complexity)
        factor = 1 + 0.25 * complexity.mean()
        assert_close(routing["capacity_factor"], factor)
        undecided = router(torch.zeros(5, HIDDEN, device=x.device))
        assert undecided["capacity_factor"].item() == pytest.approx(1.25, rel=1e-6)


class TestExpertNetworks:
    def check(self, expert: nn.Module, x: torch.Tensor, size: int, expected) -> None:
        """Check the number of parameters, the outputs, and that tokens do not affect each other."""
        expert = expert.to(x.device).eval()
        assert parameters(expert) == size
        weights = {name: double(p) for name, p in expert.named_parameters()}
        tokens = x.flatten(0, 1)
        output = expert(tokens)
        assert_close(output, expected(double(tokens), weights))
        shuffled = torch.randperm(TOKENS, device=x.device)
        assert_close(expert(tokens[shuffled]), output[shuffled])
        assert torch.equal(expert(x).flatten(0, 1), output)

    def test_feedforward_expert(self, config, x):
        expert = moe.FeedForwardExpert(HIDDEN, 4 * HIDDEN, config)
        self.check(expert, x, 525_568, expert_formulas.feed_forward)

    def test_convolutional_expert(self, config, x):
        expert = moe.ConvolutionalExpert(HIDDEN, 4 * HIDDEN, config)
        self.check(expert, x, 4 * 3 + 4 + 1024 * 256 + 256, expert_formulas.convolutional)

    def test_attention_expert(self, config, x):
        expert = moe.AttentionExpert(HIDDEN, 4 * HIDDEN, config, num_heads=4)
        self.check(expert, x, 525_568 + 64 * 192 + 192, expert_formulas.attention)

    def test_parameter_efficient_expert(self, config, x):
        expert = moe.ParameterEfficientExpert(HIDDEN, 4 * HIDDEN, config, rank=32)
        self.check(expert, x, 83_200, expert_formulas.parameter_efficient)  # 16 % of feed-forward


class TestLoadBalancing:
    def test_load_balancer_creation(self, config):
        probs = torch.tensor([[0.7, 0.2, 0.1, 0.0]])
        indices = torch.tensor([[0, 1]])
        entropy = math.log(4) + 0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1)
        expected = {"switch": 4 * (0.7 + 0.2), "gshard": 4 * 0.7, "entropy": entropy}
        for kind, value in expected.items():
            settings = MoEConfig(num_experts=4, load_balance_loss_type=kind)
            loss = moe.LoadBalancer(settings).loss(probs, indices)
            assert loss.item() == pytest.approx(value, rel=1e-6)
        with pytest.raises(ValueError, match="load_balance_loss_type"):
            MoEConfig(load_balance_loss_type="none")

    def test_capacity_info(self, config, device):
        counts = [400, 300, 300, 250, 250, 250, 150, 100]  # 2000 assignments, capacity 313
        flat = torch.tensor([e for e, n in enumerate(counts) for _ in range(n)], device=device)
        info = moe.LoadBalancer(config).capacity_info(flat.reshape(1000, 2))
        assert info.expert_capacities == [313] * 8
        assert info.assignments == counts
        assert info.kept == [313, 300, 300, 250, 250, 250, 150, 100]
        assert info.tokens_dropped == 400 - 313

    def test_load_balance_loss(self, device):
        uniform = torch.full((64, 8), 1 / 8, device=device)
        even = torch.arange(128, device=device).reshape(64, 2) % 8
        collapsed = F.one_hot(torch.zeros(64, dtype=torch.int64, device=device), 8).float()
        one = torch.zeros(64, 1, dtype=torch.int64, device=device)
        cases = [
            (moe.switch_load_balance_loss, uniform, even, 2.0),  # k
            (moe.switch_load_balance_loss, collapsed, one, 8.0),  # E
            (moe.gshard_load_balance_loss, collapsed, one, 8.0),
            (moe.gshard_load_balance_loss, uniform, even[:, :1], 1.0),
            (moe.entropy_load_balance_loss, uniform, even, 0.0),
            (moe.entropy_load_balance_loss, collapsed, one, math.log(8)),
        ]
        for loss, probs, indices, expected in cases:
            assert loss(probs, indices).item() == pytest.approx(expected, rel=1e-6, abs=1e-6)
        z_loss = moe.router_z_loss(torch.zeros(64, 8, device=device)).item()
        assert z_loss == pytest.approx(math.log(8) ** 2, rel=1e-6)


class TestMoETraining:
    def test_gradient_flow(self, device):
        config = MoEConfig(expert_dropout=0.0, router_dropout=0.0)
        layer = MoELayer(config, 32, 64).to(device)
        x = torch.randn(96, 32, device=device, requires_grad=True)
        seed = torch.randn(96, 32, device=device)
        layer(x).backward(seed)
        leaves = ref.double_leaves(layer)
        tokens = double(x).requires_grad_()
        ref.dense_differentiable(layer, tokens, leaves).backward(double(seed))
        assert_close(x.grad, tokens.grad)
        for name, parameter in layer.named_parameters():
            assert_close(parameter.grad, leaves[name].grad)

    def test_training_vs_eval(self, config, x):
        layer = MoELayer(config, HIDDEN).to(x.device).eval()
        first = layer(x)
        assert torch.equal(first, layer(x))  # bit for bit
        layer.train()
        assert relative_error(layer(x), first) > 0.01  # dropout is on
        still = MoELayer(MoEConfig(expert_dropout=0.0, router_dropout=0.0), HIDDEN).to(x.device)
        still.load_state_dict(layer.state_dict())
        assert torch.equal(still.train()(x), first)  # without dropout training is eval

    def test_expert_utilization_tracking(self, config, x):
        layer = MoELayer(config, HIDDEN, 64).to(x.device).eval()
        expected = torch.zeros(8, dtype=torch.int64)
        for batch in (x, 2 * x - 1, x[:1]):
            layer(batch)
            chosen = layer.router(batch.reshape(-1, HIDDEN))["expert_indices"].cpu()
            expected += torch.bincount(chosen.flatten(), minlength=8)
        rates = expected.double() / expected.sum()
        stats = layer.get_expert_utilization_stats()
        assert stats["usage_rates"] == pytest.approx(rates.tolist(), rel=1e-12)
        entropy = -(rates * rates.log()).sum().item() / math.log(8)
        assert stats["expert_balance"] == pytest.approx(entropy, rel=1e-12)
        assert stats["expert_efficiency"] == 1.0

    def test_auxiliary_losses_gradient(self, x):
        layer = MoELayer(MoEConfig(router_dropout=0.0), HIDDEN, 64).to(x.device)
        _, aux = layer(x, return_router_logits=True)
        (aux["load_balance_loss"] + aux["router_z_loss"]).backward()
        gate = double(layer.router.gate.weight).requires_grad_()
        logits = double(x.flatten(0, 1)) @ gate.T
        probs = logits.softmax(dim=1)
        share = F.one_hot(logits.topk(2, dim=1).indices, 8).sum(dim=1).double().mean(dim=0)
        z_loss = logits.logsumexp(dim=1).square().mean()
        (0.01 * 8 * (share * probs.mean(dim=0)).sum() + 0.001 * z_loss).backward()
        assert_close(layer.router.gate.weight.grad, gate.grad)
        assert all(p.grad is None for p in layer.experts.parameters())


class TestExpertParallelism:
    def test_parallelism_creation(self, config, x):
        places = [moe.ExpertPlacement(8, 4, rank) for rank in range(4)]
        assert [list(p.local_experts) for p in places] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        with pytest.raises(ValueError, match=r"8 experts .* 3 processes"):
            moe.ExpertPlacement(8, 3, 0)
        alone = MoELayer(dataclasses.replace(config, expert_parallelism=True), HIDDEN).to(x.device)
        assert alone.parallel.placement == moe.ExpertPlacement(8, 1, 0)
        assert_matches_reference(alone, x)


class TestMoEMemoryEfficiency:
    def test_memory_efficient_switching(self, config, x):
        bank = MoELayer(config, HIDDEN).experts.to(x.device).eval()
        stored = [bank.expert(e).cpu() for e in range(8)]
        switching = moe.MemoryEfficientSwitching(stored, x.device, max_resident=2)
        expert = torch.arange(TOKENS, device=x.device) * 8 // TOKENS  # 16 tokens each
        segments = moe.Segments.from_experts(expert, 8)
        rows = x.flatten(0, 1)
        assert torch.equal(switching(rows, segments), bank(rows, segments, moe.Path("segments")))
        assert (switching.misses, switching.hits, switching.evictions) == (8, 0, 6)
        assert switching.resident == (6, 7)
        assert switching.resident_bytes == 2 * 4 * EXPERT_PARAMETERS
        switching(rows[-16:], moe.Segments.from_experts(expert[-16:], 8))
        assert (switching.misses, switching.hits, switching.resident) == (8, 1, (6, 7))

    def test_expert_scheduler(self):
        placement = moe.ExpertScheduler(2).place([8, 7, 6, 5, 4])
        assert (placement.loads, placement.worker_of) == ((17, 13), (0, 1, 1, 0, 0))
        assert placement.imbalance == pytest.approx(17 / 15)
        generator = torch.Generator().manual_seed(7)
        for _ in range(5):
            counts = torch.randint(1, 100, (7,), generator=generator).tolist()
            loads = moe.ExpertScheduler(3).place(counts).loads
            assert sum(loads) == sum(counts)
            best = ref.best_makespan(counts, workers=3)
            assert best <= max(loads) <= (4 / 3 - 1 / 9) * best  # Graham's bound


class TestMoEIntegration:
    def test_moe_in_transformer(self, config, x):
        layer = MoELayer(config, HIDDEN).to(x.device).eval()
        attention = nn.MultiheadAttention(HIDDEN, 4, batch_first=True).to(x.device).eval()
        with torch.no_grad():
            mixed = x + attention(x, x, x, need_weights=False)[0]
            normed = F.layer_norm(mixed, (HIDDEN,))
            output = mixed + layer(normed)
        expected = double(mixed) + ref.dense_moe(layer, normed)
        assert_close(output, expected)

    def test_moe_multiple_layers(self, config, x):
        layers = [moe.create_moe_layer(k, HIDDEN, 128, config=config) for k in moe.LAYERS]
        outer = x
        for layer in layers:
            assert_matches_reference(layer, outer)
            outer = F.layer_norm(outer + layer(outer), (HIDDEN,)).detach()
        assert [int(layer.computed.sum()) // (2 * TOKENS) for layer in layers] == [2, 2, 1, 2, 2]

    def test_end_to_end_training(self, device):
        losses = train_classifier(device, steps=40)
        assert losses[0] > 1.2  # ln 4 = 1.39 is guessing
        assert losses[-1] < 0.1 * losses[0]
        assert losses == train_classifier(device, steps=40)  # bit for bit


@pytest.mark.parametrize("moe_type", ["standard", "sparse", "switch", "glam", "adaptive"])
def test_moe_types(moe_type, config, x):
    layer = moe.create_moe_layer(moe_type, HIDDEN, config=config)
    aux = assert_matches_reference(layer, x)
    assert aux["expert_utilization"].sum().item() == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(layer(x).flatten(0, 1), layer(x.flatten(0, 1)))  # leading shape is free


@pytest.mark.parametrize("num_experts", [2, 4, 8, 16])
def test_different_expert_counts(num_experts, x):
    layer = moe.create_moe(HIDDEN, num_experts=num_experts)
    aux = assert_matches_reference(layer, x)
    assert layer.computed.shape == aux["expert_utilization"].shape == (num_experts,)
    rates = layer.computed / (2 * TOKENS)
    assert torch.allclose(aux["expert_utilization"], rates, rtol=1e-6, atol=0)


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_different_top_k(top_k, x):
    layer = moe.create_moe(HIDDEN, top_k=top_k)
    assert_matches_reference(layer, x)
    routing = layer.router(x.flatten(0, 1))
    assert routing["expert_indices"].shape == (TOKENS, top_k)
    assert all(len(set(row)) == top_k for row in routing["expert_indices"].tolist())
    assert torch.allclose(routing["expert_weights"].sum(dim=1), x.new_ones(TOKENS), atol=1e-6)
