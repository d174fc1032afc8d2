"""What a configuration says is done: formats, checkpoints, attention, validation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites.numerics import TOLERANCE, relative_error, rms_error
from torchbridge.apply_config import (
    apply_config,
    attention_layer,
    checkpoint_blocks,
    train_config,
)
from torchbridge.config import AttentionConfig, Config
from torchbridge.fp8 import NativeFP8Linear
from torchbridge.hardware import probe
from torchbridge.train import TensorBatches, fit
from torchbridge.validation.model import Subject, memory_usage

QUIET = {"validation": {"enabled": False}, "kernels": {"compile": False}}


def mlp() -> nn.Sequential:
    """32 -> 64 -> ReLU -> 16."""
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))


class Stack(nn.Module):
    """Four blocks of two linear layers with a residual, 16 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(4))

    def forward(self, x):
        """[B, 16] -> [B, 16]"""
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return x


class TestReady:
    @pytest.mark.parametrize("number", ["fp32", "bf16", "fp16"])
    def test_formats(self, device, number):
        config = Config().update(precision={"default_format": number}, **QUIET)
        dtype = config.precision.default_format.dtype
        model, x = mlp().to(device), torch.randn(7, 32, device=device)
        expected = copy.deepcopy(model).cpu().double()(x.cpu().double())
        ready = apply_config(model, config)
        assert {p.dtype for p in ready.model.parameters()} == {dtype}
        with torch.no_grad():
            assert relative_error(ready.model(x.to(dtype)), expected) <= TOLERANCE[dtype]

    @pytest.mark.parametrize(("number", "limit"), [("fp8_e4m3", 0.06), ("fp8_e5m2", 0.12)])
    def test_eight_bit_formats(self, device, number, limit):
        config = Config().update(precision={"default_format": number}, **QUIET)
        model, x = mlp().to(device), torch.randn(48, 32, device=device)
        expected = copy.deepcopy(model).cpu().double()(x.cpu().double())
        ready = apply_config(model, config)
        layers = [module for module in ready.model.modules() if isinstance(module, nn.Linear)]
        assert [type(layer) for layer in layers] == [NativeFP8Linear] * 2
        with torch.no_grad():
            error = rms_error(ready.model(x), expected)
        assert limit / 10 < error <= limit  # of two layers, 8 bits each

    def test_a_format_that_nothing_computes(self):
        with pytest.raises(ValueError, match="torch computes nothing in fp4"):
            apply_config(mlp(), Config().update(precision={"default_format": "fp4"}, **QUIET))

    @pytest.mark.parametrize("level", ["conservative", "balanced"])
    def test_the_level_is_the_configurations(self, level):
        ready = apply_config(mlp(), Config(optimization_level=level).update(**QUIET))
        assert (ready.prepared.level, ready.checkpointed) == (level, ())

    @pytest.mark.parametrize(("level", "count"), [("minimal", 3), ("standard", 5), ("strict", 7)])
    def test_validation(self, device, level, count):
        config = Config().update(kernels={"compile": False}, validation={"level": level})
        ready = apply_config(mlp().to(device), config, [torch.randn(3, 32, device=device)])
        assert ready.report.score == f"{count}/{count}"

    def test_validation_finds_what_is_wrong(self, device):
        model = mlp().to(device)
        with torch.no_grad():
            model[0].weight[0, 0] = float("nan")
        config = Config().update(kernels={"compile": False})
        report = apply_config(model, config, [torch.randn(3, 32, device=device)]).report
        assert "no_nan_parameters" in report.names("fail")

    def test_validation_needs_inputs(self):
        with pytest.raises(ValueError, match="validation needs sample_inputs"):
            apply_config(mlp(), Config())
        assert apply_config(mlp(), Config.for_inference()).report is None


class TestTraining:
    def test_checkpoints_change_no_gradient(self, device):
        plain = Stack().to(device, torch.float64)
        x = torch.randn(5, 16, dtype=torch.float64, device=device)
        config = Config.for_training(**QUIET)
        ready = apply_config(copy.deepcopy(plain), config, training=True)
        assert ready.checkpointed == tuple(f"blocks.{i}" for i in range(4))  # norms are no blocks
        outputs = plain(x), ready.model(x)
        assert torch.equal(*outputs)
        for output in outputs:
            output.square().sum().backward()
        pairs = zip(plain.parameters(), ready.model.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs)

    def test_checkpoints_keep_less(self, device):
        x = torch.randn(256, 16, device=device)
        plain, again = Stack().to(device), Stack().to(device)
        checkpoint_blocks(again)
        kept = [
            memory_usage(Subject(model, (x,), device, probe(device))).details["activations"]
            for model in (plain, again)
        ]
        inner = 4 * 2 * 256 * 64 * 4  # of every block: GELU's input and its output, in bytes
        assert kept[0] - kept[1] == inner

    def test_nothing_is_checkpointed_for_inference(self):
        config = Config.for_training(**QUIET)
        assert apply_config(Stack(), config).checkpointed == ()

    @pytest.mark.parametrize(("mixed", "precision"), [(False, "float32"), (True, "auto")])
    def test_precision_of_a_run(self, mixed, precision):
        config = train_config(Config().update(precision={"mixed_precision": mixed}), epochs=3)
        assert (config.precision, config.epochs) == (precision, 3)
        with pytest.raises(ValueError, match="trained in fp32, with mixed_precision, not in bf16"):
            train_config(Config().update(precision={"default_format": "bf16"}))

    def test_a_run(self, device):
        x = torch.randn(64, 32)
        batches = TensorBatches(x, x.argmax(dim=1) % 16, batch_size=16)
        model = apply_config(mlp(), Config.for_training(**QUIET), training=True).model
        before = copy.deepcopy(model.state_dict())
        fit(model, batches, train_config(Config(), epochs=1, seed=0), device=device)
        changed = [not torch.equal(before[n], v) for n, v in model.state_dict().items()]
        assert changed == [True] * 4


class TestAttention:
    @pytest.mark.parametrize(
        ("config", "seen"),  # positions whose output changes with the input at 3 of 6
        [
            (AttentionConfig(), [0, 1, 2, 3, 4, 5]),
            (AttentionConfig(pattern="causal"), [3, 4, 5]),
            (AttentionConfig(pattern="sliding_window", window_size=2), [2, 3, 4]),
        ],
        ids=lambda v: getattr(getattr(v, "pattern", None), "value", ""),
    )
    def test_patterns(self, device, config, seen):
        layer = attention_layer(config, 16, 2).to(device).eval()
        x = torch.randn(1, 6, 16, device=device)
        other = x.clone()
        other[:, 3] += 1.0
        apart = (layer(x) - layer(other)).abs().amax(dim=-1).flatten()
        assert [i for i, change in enumerate(apart.tolist()) if change > 1e-4] == seen

    def test_a_pattern_that_nobody_wrote(self):
        with pytest.raises(ValueError, match="'ring' has no implementation"):
            attention_layer(AttentionConfig(pattern="ring"), 16, 2)
