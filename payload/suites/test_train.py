"""The training loop: its settings, its decisions, and that models learn."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites.train_reference import BF16, FP16, NO_AMP, batches, network, problem, weights
from torchbridge.hardware import Hardware
from torchbridge.llm import GPT2, GPT2Config, generate
from torchbridge.train import (
    TensorBatches,
    TrainConfig,
    Trainer,
    accuracy,
    choose_precision,
    fit,
    learning_rate,
    make_adamw,
    why_not_fused,
)


class TestTrainConfig:
    @pytest.mark.parametrize(
        "settings",
        [
            {"epochs": 0},
            {"accumulate": 0},
            {"learning_rate": 0.0},
            {"weight_decay": -1.0},
            {"clip_norm": 0.0},
            {"precision": "fp8"},
            {"schedule": "step"},
            {"warmup_steps": -1},
        ],
        ids=lambda settings: next(iter(settings)),
    )
    def test_nonsense_is_refused(self, settings):
        with pytest.raises(ValueError, match=next(iter(settings))):
            TrainConfig(**settings)


class TestPrecision:
    @pytest.mark.parametrize(
        ("hardware", "dtype", "scaled"),
        [
            (Hardware.nvidia((9, 0)), torch.bfloat16, False),
            (Hardware.nvidia((8, 0)), torch.bfloat16, False),
            (Hardware.nvidia((7, 5)), torch.float16, True),  # Turing has no bf16
            (Hardware.nvidia((5, 2)), None, False),
            (Hardware.amd("gfx942"), torch.bfloat16, False),
            (Hardware.amd("gfx1030"), torch.float16, True),
            (NO_AMP, None, False),
            (BF16, torch.bfloat16, False),
            (FP16, torch.float16, True),
        ],
        ids=lambda value: value.target if isinstance(value, Hardware) else None,
    )
    def test_by_hardware(self, hardware, dtype, scaled):
        precision = choose_precision(hardware)
        assert (precision.dtype, precision.scaled) == (dtype, scaled)
        assert precision.amp is (dtype is not None)
        feature = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, "neither bf16 nor")
        assert precision.reason.startswith(f"{hardware.target} computes {feature}")

    def test_by_name(self):
        hopper = Hardware.nvidia((9, 0))
        assert choose_precision(hopper, "float32").dtype is None
        assert choose_precision(hopper, "float16").scaled is True
        assert choose_precision(hopper, "bfloat16").reason == "bfloat16 was asked for"
        with pytest.raises(ValueError, match=r"sm_70 does not compute bf16 natively; use 'auto'"):
            choose_precision(Hardware.nvidia((7, 0)), "bfloat16")
        with pytest.raises(ValueError, match="plain does not compute fp16 natively"):
            choose_precision(NO_AMP, "float16")

    @pytest.mark.parametrize(
        ("hardware", "dtype"),
        [(NO_AMP, torch.float32), (BF16, torch.bfloat16), (FP16, torch.float16)],
        ids=["float32", "bfloat16", "float16"],
    )
    def test_is_what_is_computed_in(self, device, hardware, dtype):
        seen = set()
        model = network()
        model[3].register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
        result = fit(model, batches(device), hardware=hardware, device=device)
        assert seen == {dtype}
        assert result.precision == choose_precision(hardware)
        assert {p.dtype for p in model.parameters()} == {torch.float32}


class TestOptimizer:
    def test_fused_by_probe(self, device):
        optimizer, reason = make_adamw(network().to(device).parameters(), TrainConfig())
        assert reason == why_not_fused(device)
        assert reason is None or device.type not in ("cpu", "cuda")  # torch 2.7 has it on both
        assert optimizer.defaults["fused"] is (reason is None)

    def test_not_fused_when_not_wanted(self, device):
        optimizer, reason = make_adamw(network().parameters(), TrainConfig(fused=False))
        assert (optimizer.defaults["fused"], reason) == (False, "not asked for")

    def test_where_there_is_none(self):
        reason = why_not_fused(torch.device("meta"))
        assert reason.startswith("no fused AdamW on meta: ")
        with torch.device("meta"):
            model = nn.Linear(2, 2)
        assert make_adamw(model.parameters(), TrainConfig())[1] == reason
        with pytest.raises(ValueError, match="fused was asked for: no fused AdamW on meta"):
            make_adamw(model.parameters(), TrainConfig(fused=True))

    def test_nothing_to_train_is_refused(self):
        with pytest.raises(ValueError, match="nothing to train"):
            make_adamw(network().requires_grad_(False).parameters(), TrainConfig())


class TestSchedule:
    def test_warm_up_then_linear(self):
        config = TrainConfig(learning_rate=1.0, schedule="linear", warmup_steps=4)
        rates = [learning_rate(config, step, 8) for step in range(9)]
        assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]

    def test_cosine(self):
        config = TrainConfig(learning_rate=2.0, schedule="cosine")
        rates = [learning_rate(config, step, 100) for step in range(101)]
        expected = [1 + math.cos(math.pi * step / 100) for step in range(101)]
        assert rates == pytest.approx(expected, abs=1e-12)
        assert (rates[0], rates[50]) == (2.0, pytest.approx(1.0))

    def test_is_what_the_optimizer_uses(self, device):
        config = TrainConfig(epochs=2, learning_rate=0.1, schedule="cosine", warmup_steps=3)
        trainer = Trainer(network(), config, steps=16, device=device)
        used = []
        for batch in list(batches(device)) * 2:
            trainer.step([batch])
            used.append(float(trainer.optimizer.param_groups[0]["lr"]))  # a float32 for a graph
        rates = [learning_rate(config, step, 16) for step in range(16)]
        assert used == pytest.approx(rates, rel=1e-6)
        assert fit(network(), batches(device), config, device=device).learning_rates == tuple(rates)


class TestData:
    def test_in_order(self, device):
        x, y = problem(device, 70)
        got = list(TensorBatches(x, y, 32))
        assert [len(targets) for _, targets in got] == [32, 32, 6]
        assert len(TensorBatches(x, y, 32)) == 3
        assert torch.equal(torch.cat([inputs for inputs, _ in got]), x)
        assert torch.equal(torch.cat([targets for _, targets in got]), y)

    def test_shuffled_by_seed_and_epoch(self, device):
        x = torch.arange(50, device=device)
        data = TensorBatches(x, 2 * x, 16, seed=3)
        orders = []
        for epoch in (0, 1, 0):
            data.set_epoch(epoch)
            orders.append(torch.cat([inputs for inputs, _ in data]))
            assert all(torch.equal(2 * inputs, targets) for inputs, targets in data)
        assert torch.equal(orders[0], orders[2])
        assert not torch.equal(orders[0], orders[1])
        assert torch.equal(orders[1].sort().values, x)  # each sample once
        state = torch.get_rng_state()
        list(data)
        assert torch.equal(torch.get_rng_state(), state)

    def test_unequal_lengths_are_refused(self):
        with pytest.raises(ValueError, match="3 inputs are not 2 targets"):
            TensorBatches(torch.zeros(3), torch.zeros(2), 1)

    def test_accuracy(self, device):
        logits = torch.eye(4, device=device)[[0, 1, 2, 3, 0, 1, 2, 3, 0, 1]]
        targets = torch.tensor([0, 1, 2, 3, 0, 1, 3, 2, 1, 0], device=device)
        model = nn.Identity().train()
        assert accuracy(model, TensorBatches(logits, targets, 4)) == 0.6
        assert model.training

    def test_accuracy_is_without_dropout(self, device):
        data = TensorBatches(*problem(device), 64)
        model = network(dropout=0.9).to(device).train()
        assert accuracy(model, data) == accuracy(model, data)
        assert model.training


class TestLearning:
    def test_learnable_problem(self, device):
        """The final loss is below 0.05, and the model is accurate on samples not trained on."""
        model = network()
        held_out = TensorBatches(*problem(device, 512, seed=1), 128)
        config = TrainConfig(epochs=60, learning_rate=1e-2, seed=0, schedule="cosine")
        assert accuracy(model.to(device), held_out) < 0.45
        result = fit(model, batches(device, shuffled=True), config, device=device)
        assert result.losses[0] == pytest.approx(math.log(4), abs=0.2)
        assert sum(result.losses[-8:]) / 8 < 0.05
        assert accuracy(model, batches(device)) == 1.0
        assert accuracy(model, held_out) >= 0.8

    @pytest.mark.parametrize("hardware", [BF16, FP16], ids=["bfloat16", "float16"])
    def test_16_bit_learns_as_well(self, device, hardware):
        config = TrainConfig(epochs=20, learning_rate=1e-2, seed=0)
        options = {"config": config, "device": device}
        wide = fit(network(), batches(device), hardware=NO_AMP, **options).losses
        narrow = fit(network(), batches(device), hardware=hardware, **options).losses
        assert max(abs(a - b) for a, b in zip(wide, narrow, strict=True)) < 0.03
        assert narrow[-1] < 0.1

    def test_a_language_model(self, device):
        sizes = {"vocabulary": 31, "positions": 24, "layers": 1, "heads": 2, "width": 32}
        model = GPT2(GPT2Config(**sizes, dropout=0.0))
        text = torch.randint(0, 31, (1, 20), device=device)
        data = TensorBatches(text[:, :-1], text[:, 1:], 1)

        def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        config = TrainConfig(epochs=80, learning_rate=5e-3, clip_norm=1.0)
        result = fit(model, data, config, loss=loss, hardware=NO_AMP, device=device)
        assert result.losses[-1] < 0.1
        assert torch.equal(generate(model.eval(), text[:, :3], 17), text)

    def test_frozen_weights_stay(self, device):
        model = network().to(device)
        model[0].requires_grad_(False)
        before = weights(model)
        fit(model, batches(device), TrainConfig(learning_rate=1e-2), device=device)
        moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert moved == [False, False, True, True]

    def test_same_seed_same_loss(self, device):
        config = TrainConfig(epochs=3, learning_rate=1e-2, seed=11)

        def losses(seed: int) -> tuple[float, ...]:
            torch.manual_seed(999 + seed)  # the state before has no effect
            settings = dataclasses.replace(config, seed=seed)
            return fit(network(0.3), batches(device), settings, device=device).losses

        assert losses(11) == losses(11)
        assert losses(11) != losses(12)

    def test_result_has_an_entry_per_step(self, device):
        config = TrainConfig(epochs=3, accumulate=3, clip_norm=1.0)
        result = fit(network(), batches(device), config, device=device)
        assert result.steps == 3 * 3  # eight batches are three groups
        assert len(result.learning_rates) == len(result.gradient_norms) == 9
        assert result.unfused == why_not_fused(device)
        assert result.seconds > 0
